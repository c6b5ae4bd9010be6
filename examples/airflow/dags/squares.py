"""Adds squares that mapped tasks compute: with the executor of Peloton, four instances of one job."""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None)
def squares() -> None:
    @task
    def square(number: int) -> int:
        return number * number

    @task
    def add(numbers: list[int]) -> int:
        total = sum(numbers)
        print("the sum is", total)
        return total

    add(square.expand(number=[1, 2, 3, 4]))


squares()
