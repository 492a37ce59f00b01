"""Waiting, and not waiting (SPEC L2; cases of kind retry)."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support import replies
from tests.support.certificates import tls_server
from tests.support.model_server import ModelServer
from tests.support.replies import Reply
from tests.support.run_world import RunWorld


def throttled(retry_after: str) -> Reply:
    return replies.error(429, "slow down", headers=(("retry-after", retry_after),))


async def test_the_providers_wish_for_a_pause_is_kept(world: RunWorld) -> None:
    """Case C037: the wait is at least as long as asked for, and not much longer."""
    world.model.add(throttled("1"), "done")
    assert (await world.ask())["answer"] == "done"
    first, second = world.model.requests
    assert 1.0 <= second.at - first.at < 10


@pytest.mark.parametrize("nonsense", ["-5", "nan", "soon"])
async def test_a_senseless_wish_means_the_usual_pause(world: RunWorld, nonsense: str) -> None:
    """Case C037: nothing raises on odd values, and nothing is repeated at once."""
    world.model.add(throttled(nonsense), "done")
    assert (await world.ask())["answer"] == "done"
    first, second = world.model.requests
    assert 0.2 < second.at - first.at < 10


@pytest.mark.parametrize("limits", [{}, {"deadline_s": 60}])
async def test_a_wish_nobody_can_wait_for_fails_at_once(world: RunWorld, limits: dict[str, int]) -> None:
    """Case C037: a day, or longer than the Run has left, is not slept through."""
    await world.publish(limits=limits)
    world.model.add(throttled("86400" if not limits else "300"))
    began = time.monotonic()
    run = await world.ask()
    assert (run["status"], run["end_reason"]) == ("failed", "model_rate_limited")
    assert time.monotonic() - began < 5
    again = datetime.fromisoformat(run["error"]["message"].split()[-1].rstrip("."))
    assert abs((again - datetime.now(UTC)).total_seconds() - (300 if limits else 86400)) < 30


async def test_a_stop_during_a_wait_ends_the_run_at_once(world: RunWorld) -> None:
    """Case C037, SPEC S8: under two seconds."""
    world.model.add(throttled("30"))
    run_id = await world.start()
    await world.model.wait_for_requests(1)
    await an_attempt_failed(world, run_id)
    began = time.monotonic()
    await world.stop(run_id)
    assert (await world.ended(run_id))["status"] == "stopped"
    assert time.monotonic() - began < 2


async def an_attempt_failed(world: RunWorld, run_id: str) -> None:
    """Wait until an attempt has failed."""
    async with asyncio.timeout(20):
        while True:
            states = [one["state"] for call in await world.operations(run_id) for one in call["attempts"]]
            if "failed" in states:
                return
            await asyncio.sleep(0.01)


async def test_tries_are_counted_and_end(world: RunWorld) -> None:
    """SPEC L2: the configured number of tries, then the Run fails."""
    await world.publish(model={"retry": {"max_attempts": 2}})
    world.model.add(*[replies.error(503, "down")] * 3)
    run = await world.ask()
    assert (run["status"], run["end_reason"], len(world.model.requests)) == ("failed", "model_unavailable", 2)


CANNOT_CLEAR = [
    (replies.error(402, "Insufficient Balance"), "model_quota"),
    (replies.error(400, "Content Exists Risk"), "content_filtered"),
    (replies.error(401, "bad key"), "model_auth"),
    (replies.error(404, "model not found"), "model_not_found"),
    (replies.body(b"<!doctype html><title>Sign in</title>"), "model_no_api"),
    (replies.error(400, "Insufficient Balance", type="unknown_error", code="invalid_request_error"), "model_quota"),
]


@pytest.mark.parametrize(("reply", "reason"), CANNOT_CLEAR)
async def test_what_cannot_clear_is_asked_once(world: RunWorld, reply: Reply, reason: str) -> None:
    """Case C039: its own reason, and the session stays usable."""
    world.model.add(reply, "fine")
    session = await world.open_session()
    run = await world.ask("q", session)
    assert (run["status"], run["end_reason"], len(world.model.requests)) == ("failed", reason, 1)
    assert (await world.ask("again", session))["status"] == "succeeded"


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_is_refused_and_the_key_stays_here(world: RunWorld, status: int) -> None:
    """Case C107, SPEC Y4: the other place never hears of it."""
    async with ModelServer(["never"]) as elsewhere:
        headers = (("location", f"{elsewhere.base_url}/chat/completions"),)
        world.model.add(replies.body(b"", status=status, headers=headers))
        run = await world.ask()
    assert (run["status"], run["end_reason"]) == ("failed", "model_redirected")
    assert "base_url" in run["error"]["message"]
    assert (len(world.model.requests), elsewhere.requests) == (1, [])


async def test_an_address_that_the_guard_refuses_is_not_blamed_on_the_provider(world: RunWorld) -> None:
    """SPEC Y4, S2: nothing was sent, and the end says whose setting that is."""
    await world.publish(model={"base_url": "http://10.255.255.1/v1"})
    run = await world.ask()
    assert (run["status"], run["end_reason"]) == ("failed", "model_address_refused")
    assert "AGENTLOOM_PRIVATE_ADDRESSES" in run["error"]["message"]
    assert "10.255" not in run["error"]["message"]
    [call] = await world.operations(run["run_id"])
    assert [attempt["error"]["reason"] for attempt in call["attempts"]] == ["model_address_refused"]


async def test_a_certificate_that_is_not_trusted_ends_the_run_with_what_to_do(world: RunWorld, tmp_path: Path) -> None:
    """SPEC L2, S2: one try, nothing sent, and the end says who has to act."""
    async with tls_server(tmp_path) as server:
        await world.publish(model={"base_url": f"{server.url}v1"})
        run = await world.ask()
        assert server.heard == []
    assert (run["status"], run["end_reason"]) == ("failed", "model_certificate_untrusted")
    assert "certificate" in run["error"]["message"]
    assert "localhost" not in run["error"]["message"]
    [call] = await world.operations(run["run_id"])
    assert [attempt["error"]["reason"] for attempt in call["attempts"]] == ["model_certificate_untrusted"]


async def connected(world: RunWorld, **changes: object) -> None:
    """Store the connection `mine` for the scripted model; `changes` go before."""
    wanted = {"provider": "openai_compatible", "base_url": world.model.base_url, "api_key": "sk-first-key"}
    answer = await world.http.put("/connections/mine", json=wanted | changes)
    assert answer.status_code == 200, answer.text


async def test_a_connection_that_has_moved_gives_its_key_to_no_older_release(world: RunWorld) -> None:
    """SPEC L3: the key of the new address never goes to the old one; stored anew for it, the Run goes on."""
    await connected(world)
    await world.publish(model={"connection": "mine"})
    await connected(world, base_url="https://elsewhere.example/v1", api_key="sk-second-key")
    run = await world.ask()
    assert (run["status"], run["end_reason"], world.model.requests) == ("failed", "model_connection_unusable", [])
    await connected(world, api_key="sk-third-key")
    world.model.add("done")
    await world.resume(run["run_id"])
    assert (await world.ended(run["run_id"]))["answer"] == "done"
    assert [one.headers["authorization"] for one in world.model.requests] == ["Bearer sk-third-key"]


async def test_a_connection_that_is_gone_ends_the_run_with_its_own_reason(world: RunWorld) -> None:
    """SPEC S2: nobody refused the key; there is none."""
    await connected(world)
    await world.publish(model={"connection": "mine"})
    assert (await world.http.delete("/connections/mine")).status_code == 204
    run = await world.ask()
    assert (run["end_reason"], world.model.requests) == ("model_connection_unusable", [])


async def test_a_connection_without_a_key_is_used_without_one(world: RunWorld) -> None:
    """SPEC B3, L1: a local server needs none; the connection still says address and window."""
    await connected(world, api_key=None)
    await world.publish(model={"connection": "mine"})
    world.model.add("done")
    assert (await world.ask())["answer"] == "done"
    assert "authorization" not in world.model.requests[0].headers
