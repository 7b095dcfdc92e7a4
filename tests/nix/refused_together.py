"""Options that are good alone and must be refused together."""

from tests.nix.topologies import ECHO, Refusal, agent, agents, two

# 107 bytes is what the kernel takes: /<n>/a/control.sock
_LONG = "/" + "r" * 92

TOGETHER = (
    Refusal(
        "one_user_for_two_agents",
        two('{ user = "x"; }', '{ user = "x"; }'),
        'agents.b.user: user "x" is already that of agents.a.user',
    ),
    Refusal(
        "user_of_a_daemon",
        two("{ }", '{ user = "cowboy-a"; }'),
        'agents.b.user: user "cowboy-a" is already that of agents.a',
    ),
    Refusal(
        "user_of_metrics",
        agents(f"{{ a.sources.s = {ECHO}; }}")[:-1] + ' metrics.user = "a"; }',
        'metrics.user: user "a" is already that of agents.a.user',
    ),
    Refusal("root", agent('{ user = "root"; }'), "agents.a.user: an agent must not run as root"),
    Refusal(
        "one_path_for_two",
        '{ paths.config = "x"; paths.state = "x"; }',
        'paths.state: path "x" is already that of paths.config',
    ),
    Refusal(
        "socket_path",
        agents(f"{{ a.sources.s = {ECHO}; }}")[:-1] + f' paths.runtime = "{_LONG}"; }}',
        f"agents.a: the socket path {_LONG}/a/control.sock has 108 bytes; the kernel takes 107",
    ),
    Refusal(
        "redis_socket_path",
        f'{{ redis.socket = "/{"r" * 107}"; }}',
        f"redis.socket: the socket path /{'r' * 107} has 108 bytes; the kernel takes 107",
    ),
    Refusal(
        "redis_socket_in_an_agent",
        f'{{ agents.redis.sources.s = {ECHO}; paths.runtime = "run"; '
        'redis.socket = "run/redis/redis.sock"; }',
        "agents.redis: its runtime directory run/redis would hold redis.socket, "
        "run/redis/redis.sock; rename the agent or move the socket",
    ),
    Refusal(
        "socket_twice",
        f'{{ agents.x.sources.s = {ECHO}; paths.runtime = "run"; '
        'redis.socket = "run/x/runner.sock"; }',
        'agents.x: socket "run/x/runner.sock" is already that of redis.socket\n'
        "agents.x: its runtime directory run/x would hold redis.socket, "
        "run/x/runner.sock; rename the agent or move the socket",
    ),
    Refusal(
        "every_problem_is_told",
        two('{ user = "root"; }', '{ user = "root"; }'),
        'agents.b.user: user "root" is already that of agents.a.user\n'
        "agents.a.user: an agent must not run as root\n"
        "agents.b.user: an agent must not run as root",
    ),
)
