"""The configuration of YARN and the command lines of its programs, which the scripts of this example share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

RM_PORTS = ("tracker", "scheduler", "clients", "admin", "web", "controller")
"""The ports of the resource manager and of its controller, one after the other."""
HEAP_MIB = 256
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.net", "java.base/java.nio")
"""Packages that Hadoop reaches into; Java 17 asks to name them."""


def port_of(first: int, name: str) -> int:
    return first + RM_PORTS.index(name)


def site(host: str, first: int, jars: str, work: str) -> dict[str, str]:
    """Return the settings that the resource manager, node managers and clients share."""
    rm = "yarn.resourcemanager"
    return {
        "fs.defaultFS": "file:///",
        "hadoop.security.authentication": "simple",
        "yarn.timeline-service.enabled": "false",
        "yarn.application.classpath": f"$HADOOP_CONF_DIR,{jars}/*",
        f"{rm}.hostname": host,
        f"{rm}.resource-tracker.address": f"{host}:{port_of(first, 'tracker')}",
        f"{rm}.scheduler.address": f"{host}:{port_of(first, 'scheduler')}",
        f"{rm}.address": f"{host}:{port_of(first, 'clients')}",
        f"{rm}.admin.address": f"{host}:{port_of(first, 'admin')}",
        f"{rm}.webapp.address": f"{host}:{port_of(first, 'web')}",
        f"{rm}.connect.retry-interval.ms": "1000",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.app.mapreduce.am.staging-dir": f"{work}/staging",
    }


def write_configuration(folder: Path, values: Mapping[str, str]) -> None:
    """Write the files that YARN, Spark and other clients read from HADOOP_CONF_DIR."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    for name in ("core-site.xml", "yarn-site.xml"):
        (folder / name).write_text(f"<configuration>\n{rows}</configuration>\n")
    (folder / "capacity-scheduler.xml").write_text(
        "<configuration>"
        "<property><name>yarn.scheduler.capacity.root.queues</name><value>default</value></property>"
        "<property><name>yarn.scheduler.capacity.root.default.capacity</name><value>100</value></property>"
        "<property><name>yarn.scheduler.capacity.maximum-am-resource-percent</name><value>0.5</value></property>"
        "</configuration>"
    )
    (folder / "log4j.properties").write_text(
        "log4j.rootLogger=WARN, console\n"
        "log4j.logger.org.apache.hadoop.yarn.applications.distributedshell.Client=INFO\n"
        "log4j.logger.com.sun.jersey=OFF\n"
        "log4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.target=System.err\n"
        "log4j.appender.console.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n\n"
    )


def java(configuration: Path, jars: str, work: str, main: str, *arguments: str) -> list[str]:
    """Return the command line of a program of YARN. The home of a user is ``work``, where clients put their files."""
    opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    options = [f"-Xmx{HEAP_MIB}m", f"-Duser.home={work}", "-XX:+UseSerialGC"]
    return ["java", *opened, *options, "-cp", f"{configuration}:{jars}/*", main, *arguments]


def environment(configuration: Path) -> dict[str, str]:
    return {**os.environ, "HADOOP_CONF_DIR": str(configuration), "HADOOP_USER_NAME": os.environ.get("USER", "root")}
