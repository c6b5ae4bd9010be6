#!/bin/sh
# The entry point of the image postgres: makes the database at the first start, and runs the server.
set -eu
data=/var/lib/postgresql/18/docker
if [ ! -s "$data/PG_VERSION" ]; then
  mkdir -p "$data"
  echo "$POSTGRES_PASSWORD" >/tmp/password
  initdb -D "$data" --encoding=UTF8 -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
  rm /tmp/password
  echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
  echo "create database $POSTGRES_DB" | postgres --single -D "$data" postgres
fi
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
