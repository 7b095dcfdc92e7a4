# The socket table: every Unix socket of the deployment, once.
let
  util = import ./util.nix;
in
rec {
  directory = topology: agent: "${topology.paths.runtime}/${agent}";

  ofAgent = topology: agent: {
    control = "${directory topology agent}/control.sock";
    reply = "${directory topology agent}/reply.sock";
    runner = "${directory topology agent}/runner.sock";
  };

  # [ { option; value; } … ], the Redis socket first
  all =
    topology:
    [
      {
        option = "redis.socket";
        value = topology.redis.socket;
      }
    ]
    ++ util.concatMapToList (
      agent: _:
      util.mapToList (_: value: {
        option = "agents.${agent}";
        inherit value;
      }) (ofAgent topology agent)
    ) topology.agents;
}
