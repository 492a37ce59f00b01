"""The user of `agentloom dev`: space `default`, user `dev`, an admin with one key."""

from storage.commits.create_key import CreateKey, create_key
from storage.commits.create_space_user import CreateSpaceUser, create_space_user
from storage.payloads import Keys
from storage.reads import find_key
from storage.store import Store


async def ensure_dev_user(database_url: str, *, index_key: bytes, api_key: str) -> str:
    """Make space, user and key where they are missing; a repeat changes nothing. Needs no master key: no content.

    Returns the key; a new one in the place of one that was revoked, which stays revoked.
    """
    store = Store.open(database_url, Keys(master={}, index=index_key), pool_size=1)
    try:
        user = await create_space_user(store, CreateSpaceUser(name="dev", role="admin"))
        await create_key(store, CreateKey(user.user_id, key=api_key))
        if await find_key(store, api_key) is not None:
            return api_key
        return (await create_key(store, CreateKey(user.user_id))).key
    finally:
        await store.aclose()
