"""Counters of the API process for Prometheus: how many requests per route and status, and how long they took.

Labels are route templates, methods and statuses: never an id, a query or anything that a client chose freely.
"""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """One registry per application, so that several can live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter(
            "agentloom_http_requests", "Requests answered.", (*labels, "status"), registry=self._registry
        )
        self.seconds = Histogram(
            "agentloom_http_seconds", "Seconds until the answer began.", labels, registry=self._registry
        )
        self.open = Gauge("agentloom_http_open_requests", "Requests being answered.", registry=self._registry)

    def exposition(self) -> Response:
        """Everything counted so far, as text."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class Counting:
    """ASGI middleware: counts each request when its answer begins."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        with self._metrics.open.track_inprogress():
            await self._app(scope, receive, counted)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
