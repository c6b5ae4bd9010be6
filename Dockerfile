# Peloton, all roles in one image:  docker build -t peloton .  &&  docker run peloton api
# The first argument names the role (or roles), settings come from the environment or a file: see docs/settings.md.
FROM python:3.12-slim AS build

WORKDIR /src
RUN python -m venv --without-pip /opt/peloton
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE NOTICE ./
COPY third_party third_party
COPY peloton peloton
COPY workflows workflows
COPY activities activities
COPY services services
COPY cli cli
COPY examples examples
RUN pip --python /opt/peloton/bin/python install --no-cache-dir --disable-pip-version-check \
        -c constraints.txt '.[aurora,web,postgres,secure]'

FROM python:3.12-slim

RUN groupadd --gid 10001 peloton && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp peloton
COPY --from=build /opt/peloton /opt/peloton
COPY deploy/entrypoint.sh deploy/healthcheck.py /opt/peloton/deploy/
ENV PATH=/opt/peloton/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PELOTON_HOST=0.0.0.0 \
    PELOTON_HEALTH_FILE=/tmp/peloton-health.json
USER 10001:10001
EXPOSE 5397
STOPSIGNAL SIGTERM
ENTRYPOINT ["/bin/sh", "/opt/peloton/deploy/entrypoint.sh"]
CMD ["api"]
