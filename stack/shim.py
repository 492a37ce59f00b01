"""Becomes another program that dies with its parent, and that may run as an unprivileged user.

Run as a script by the interpreter (`-I -S`, nothing imported from AgentLoom): it sets the parent-death signal and, if
asked, leaves root behind, then executes the command under its own process id. PostgreSQL refuses to run as root; a
user namespace in which root appears as an ordinary user satisfies it while all files stay root's own.

Arguments: PARENT_PID DEATH_SIGNAL IDENTITY COMMAND…, where IDENTITY is `same`, `namespace`, or `user:UID:GID`.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
UID_IN_NAMESPACE = 1000
EXIT_CANNOT_CHANGE_USER = 97
EXIT_NO_PARENT = 98


def become_unprivileged_in_namespace() -> None:
    """Enter a user namespace in which this root is user 1000. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{UID_IN_NAMESPACE} 0 1"),
        ("gid_map", f"{UID_IN_NAMESPACE} 0 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)


def become_user(uid: int, gid: int) -> None:
    """Give up root for another user for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def change_identity(identity: str) -> None:
    """Leave root behind as asked; `same` stays what we are."""
    kind, _, ids = identity.partition(":")
    if kind == "namespace":
        become_unprivileged_in_namespace()
    elif kind == "user":
        uid, _, gid = ids.partition(":")
        become_user(int(uid), int(gid))


def die_with(parent: int, death_signal: int) -> None:
    """Have the kernel send the signal when the parent ends; where there is no such call, nothing changes."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # it ended before the call above
        sys.exit(EXIT_NO_PARENT)


def main(arguments: list[str]) -> None:
    parent, death_signal, identity, *command = arguments
    try:
        change_identity(identity)
    except OSError:
        sys.exit(EXIT_CANNOT_CHANGE_USER)
    # After the change of user, which clears the parent-death signal.
    die_with(int(parent), int(death_signal))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
