# clia with all extras. The build needs the package indexes only; `compose.yaml` starts a forge, a worker, PostgreSQL and a hub.
FROM python:3.13-slim AS build
COPY . /src
# The build fetches the browser files of the forge with pinned digests.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/clia_agents-*.whl)[all]" && rm -rf /wheels
RUN useradd --create-home clia && mkdir /space /hub && chown clia /space /hub
USER clia
WORKDIR /space
VOLUME ["/space", "/hub"]
EXPOSE 8337
ENTRYPOINT ["clia"]
CMD ["serve", "--host", "0.0.0.0"]
