"""The policy that the generated ACL must amount to, in words of its own.

Written down a second time on purpose: the ACL is not tested with itself. Verbs are lower case, with
a subcommand as `xgroup|create`; a container without one stands for all its subcommands.
"""

HANDSHAKE = {"hello", "auth", "ping"}
OPEN_TO_ALL = {"auth", "hello", "quit", "reset"}  # the servers ask no permission for these
STREAM_KEYS = ("inbox", "outbox", "inbox:dead")
SOURCE_KEYS = (*STREAM_KEYS, "sent", "replies", "ledger", "fence")

AGENT_VERBS = {
    *("xgroup|create", "xreadgroup", "xread", "xautoclaim", "xrange", "xtrim", "xadd", "xack"),
    *("get", "set", "incr", "hget", "hset", "hdel", "hkeys"),
    *("evalsha", "script|load"),
}
SOURCE_VERBS = {
    "inbox": {"xadd", "evalsha"},
    "sent": {"hget", "hkeys", "hset", "hdel", "evalsha"},
    "outbox": {"xreadgroup", "xautoclaim", "xack", "xtrim", "xgroup|create"},
    None: {"script|load"},
}
OPERATOR_READS = {
    *("exists", "type", "ttl", "pttl", "get", "strlen"),
    *("hget", "hmget", "hgetall", "hexists", "hlen", "hkeys", "hscan"),
    *("xlen", "xrange", "xrevrange", "xread", "xinfo", "xpending"),
}
OPERATOR_VERBS = OPERATOR_READS | {"command", "dbsize", "scan", "xadd"}
METRICS_VERBS = {"info", "xinfo", "xlen"}


def published(identity: str) -> set[str]:
    if identity.startswith("agent-"):
        return HANDSHAKE | AGENT_VERBS
    if identity.startswith("source."):
        return HANDSHAKE | set().union(*SOURCE_VERBS.values())
    return HANDSHAKE | {"operator": OPERATOR_VERBS, "metrics": METRICS_VERBS}[identity]


# Each verb as it is used, with {} for the key.
USES = {
    "xgroup|create": "XGROUP CREATE {} g 0 MKSTREAM",
    "xreadgroup": "XREADGROUP GROUP g c STREAMS {} >",
    "xread": "XREAD STREAMS {} 0",
    "xautoclaim": "XAUTOCLAIM {} g c 0 0-0",
    "xrange": "XRANGE {} - +",
    "xrevrange": "XREVRANGE {} + -",
    "xtrim": "XTRIM {} MINID 1-0",
    "xadd": "XADD {} * content x",
    "xack": "XACK {} g 1-0",
    "xlen": "XLEN {}",
    "xinfo": "XINFO STREAM {}",
    "xpending": "XPENDING {} g",
    "get": "GET {}",
    "set": "SET {} 1",
    "incr": "INCR {}",
    "strlen": "STRLEN {}",
    "hget": "HGET {} f",
    "hmget": "HMGET {} f",
    "hgetall": "HGETALL {}",
    "hset": "HSET {} f v",
    "hdel": "HDEL {} f",
    "hexists": "HEXISTS {} f",
    "hlen": "HLEN {}",
    "hkeys": "HKEYS {}",
    "hscan": "HSCAN {} 0",
    "exists": "EXISTS {}",
    "type": "TYPE {}",
    "ttl": "TTL {}",
    "pttl": "PTTL {}",
    "evalsha": "EVALSHA 0 1 {}",
    "del": "DEL {}",
}
OWNERS = ("scout:a2a", "scout:chat", "scout-b:a2a", "scoutx:a2a", "smith:echo", "Scout:a2a")
KEYS = [
    *(f"{owner}:{part}" for owner in OWNERS for part in SOURCE_KEYS),
    *("scout", "scout:", "scout:x", "inbox", "xinbox", ":inbox", "scout:a2a:inbox2", "*", "other"),
]


def may(identity: str, verb: str, key: str) -> bool:
    """The policy, in words of this test."""
    owner, _, part = key.partition(":inbox:") if key.endswith(":dead") else key.rpartition(":")
    if identity == "agent-scout":
        return verb in AGENT_VERBS and key.startswith("scout:")
    if identity == "source.scout.a2a":
        return owner == "scout:a2a" and verb in SOURCE_VERBS.get(part, set())
    if identity == "operator":
        return verb in OPERATOR_READS or (verb == "xadd" and key.endswith(":inbox"))
    stream = key.endswith((":inbox", ":outbox", ":inbox:dead"))
    return verb in METRICS_VERBS and stream


# The least access to the key with which both servers let a verb pass: what %R~ and %W~ rest on.
FLAGS = {
    **dict.fromkeys(("xreadgroup", "xread", "xrange", "xinfo", "xpending", "get", "hget"), "R"),
    **dict.fromkeys(
        ("xautoclaim", "xack", "xtrim", "xadd", "xgroup|create", "hset", "hdel", "set"), "W"
    ),
    **dict.fromkeys(("evalsha", "incr"), "RW"),
}

READ = "XREADGROUP GROUP cowboy harness-a2a COUNT 1 STREAMS"
READ_OUT = "XREADGROUP GROUP source reader COUNT 1 STREAMS"

# Who, what is let through, what is refused, and the server's reason for that.
PAIRS = (
    ("agent-scout", f"{READ} scout:a2a:inbox >", f"{READ} smith:echo:inbox >", "key"),
    ("agent-scout", "XADD scout:a2a:outbox * c x", "XADD smith:echo:outbox * c x", "key"),
    ("agent-scout", "XRANGE scout:a2a:inbox - +", "XPENDING scout:a2a:inbox cowboy", "command"),
    ("agent-scout", "HGET scout:a2a:ledger f", "HGETALL scout:a2a:ledger", "command"),
    ("agent-scout", "XGROUP CREATE scout:a2a:inbox g 0", "XGROUP DESTROY scout:a2a:inbox g",
     "command"),
    ("agent-scout", "SCRIPT LOAD return", "SCRIPT FLUSH", "command"),
    ("agent-scout", "INCR scout:a2a:fence", "DEL scout:a2a:fence", "command"),
    ("agent-scout", "PING", "ACL SETUSER agent-scout +@all", "command"),
    ("agent-scout", "PING", "CLIENT SETNAME x", "command"),
    ("agent-smith", "XADD smith:echo:inbox * c x", "XADD scout:echo:inbox * c x", "key"),
    ("source.scout.a2a", "XADD scout:a2a:inbox * c x", "XADD scout:chat:inbox * c x", "key"),
    ("source.scout.a2a", "XADD scout:a2a:inbox * c x", "XADD scout:a2a:outbox * c x", "key"),
    ("source.scout.a2a", "XADD scout:a2a:inbox * c x", "XRANGE scout:a2a:inbox - +", "command"),
    ("source.scout.a2a", f"{READ_OUT} scout:a2a:outbox >", f"{READ} scout:a2a:inbox >", "key"),
    ("source.scout.a2a", f"{READ_OUT} scout:a2a:outbox >", f"{READ_OUT} scout:chat:outbox >",
     "key"),
    ("source.scout.a2a", "XACK scout:a2a:outbox source 1-0", "XACK scout:a2a:inbox cowboy 1-0",
     "key"),
    ("source.scout.a2a", "XTRIM scout:a2a:outbox MINID 1-0", "XTRIM scout:a2a:inbox MINID 1-0",
     "key"),
    ("source.scout.a2a", "HSET scout:a2a:sent m 1", "HSET scout:a2a:replies m 1", "key"),
    ("source.scout.a2a", "HGET scout:a2a:sent m", "HGET scout:a2a:ledger uuid", "key"),
    ("source.scout.a2a", "HGET scout:a2a:sent m", "INCR scout:a2a:fence", "command"),
    ("operator", "XPENDING scout:a2a:inbox cowboy", "XACK scout:a2a:inbox cowboy 1-0", "command"),
    ("operator", "XRANGE smith:echo:outbox - +", "XTRIM smith:echo:outbox MAXLEN 0", "command"),
    ("operator", "XADD scout:a2a:inbox * c x", "XADD scout:a2a:outbox * c x", "key"),
    ("operator", "XADD smith:echo:inbox * c x", "XADD scout:a2a:inbox:dead * c x", "key"),
    ("operator", "HGETALL scout:a2a:ledger", "HSET scout:a2a:ledger uuid x", "command"),
    ("operator", "SCAN 0", "KEYS *", "command"),
    ("operator", "DBSIZE", "FLUSHALL", "command"),
    ("operator", "COMMAND COUNT", "CONFIG GET dir", "command"),
    ("operator", "PING", "ACL LIST", "command"),
    ("operator", "PING", "SHUTDOWN NOSAVE", "command"),
    ("metrics", "INFO", "CONFIG GET maxmemory", "command"),
    ("metrics", "XLEN scout:a2a:inbox", "XRANGE scout:a2a:inbox - +", "command"),
    ("metrics", "XINFO GROUPS scout:a2a:outbox", "XADD scout:a2a:inbox * c x", "command"),
    ("metrics", "XLEN scout:a2a:inbox:dead", "XLEN scout:a2a:replies", "key"),
)  # fmt: skip
