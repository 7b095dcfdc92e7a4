# Identities, the credential of each, and who is given it. Only names: no secret passes here.
let
  names = import ./names.nix;
  util = import ./util.nix;

  # [ { identity; option; owner; units; } … ]
  holders =
    topology:
    util.concatMapToList (
      agent: options:
      [
        {
          identity = names.identity.agent agent;
          option = "agents.${agent}";
          owner = names.daemonUser agent;
          units = [ (names.daemonUnit agent) ];
        }
      ]
      ++ util.mapToList (source: set: {
        identity = names.identity.source agent source;
        option = "agents.${agent}.sources.${source}";
        owner = set.client.user;
        inherit (set.client) units;
      }) options.sources
    ) topology.agents
    ++ map (fixed topology) [
      "operator"
      "metrics"
    ];

  fixed = topology: name: {
    identity = names.identity.${name};
    option = name;
    owner = topology.${name}.user;
    inherit (topology.${name}) units;
  };

  table = entry: topology: builtins.listToAttrs (map entry (holders topology));
in
{
  inherit holders;

  # identity -> { credential; }
  identities = table (holder: {
    name = holder.identity;
    value.credential = names.credential holder.identity;
  });

  # credential -> { owner; units; }
  table = table (holder: {
    name = names.credential holder.identity;
    value = {
      inherit (holder) owner units;
    };
  });

  # What the daemon of an agent loads: the name it asks for -> the credential.
  ofAgent = agent: { redis-password = names.credential (names.identity.agent agent); };
}
