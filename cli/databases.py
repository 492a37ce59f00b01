"""The database of the environment, looked at before a command works on it, so that a refusal says what mends it."""

from cli.output import CommandError, ExitCode


async def check_reachable(url: str, *, then: str) -> None:
    """Raises CommandError if the database takes no connections; `then` is the command to repeat."""
    from stack import postgres

    if reason := await postgres.problem(url, timeout_s=10):
        raise CommandError(
            "The database can't be used.",
            why=reason,
            mend=f"Start that server or correct DATABASE_URL, then: {then}",
            exit_code=ExitCode.NOT_REACHABLE,
        )


async def check_schema(url: str, *, then: str) -> None:
    """Raises CommandError, beside what `check_reachable` raises, if the schema is another one than this code's."""
    from storage.migrate import revision

    await check_reachable(url, then=then)
    current, newest = await revision(url)
    check_known(current)
    if current != newest:
        raise CommandError(
            "The database does not have the schema of this code.",
            why=f"It is at {current or 'nothing'}, this code needs {newest}.",
            mend=f"agentloom migrate, then: {then}",
            exit_code=ExitCode.REFUSED,
        )


def check_known(current: str | None) -> None:
    """Raises CommandError for a step of the schema that a newer version brought."""
    from storage.migrate import knows

    if not knows(current):
        raise CommandError(
            f"The database is at {current}, which this version does not know.",
            why="A newer version of AgentLoom has migrated it.",
            mend="Run that version, or restore a backup from before.",
            exit_code=ExitCode.REFUSED,
        )
