# Topology -> everything that is derived from it: identities, ACL, sources.json, sockets,
# credentials. Pure, builtins only. `render` is what deployments and tests use:
#   nix-instantiate --eval --strict --json \
#     --expr '(import ./modules/lib).render (import ./examples/demo.nix)'
let
  acl = import ./acl.nix;
  checks = import ./checks.nix;
  credentials = import ./credentials.nix;
  names = import ./names.nix;
  sockets = import ./sockets.nix;
  sources = import ./sources.nix;
  topology = import ./topology.nix;

  # Types first, all of them, then what concerns several options.
  checked =
    value:
    let
      typed = topology "" value;
    in
    checks.verified (builtins.deepSeq typed typed);

  agent = whole: name: options: {
    inherit (options) user;
    identity = names.identity.agent name;
    sources_json = sources.file name options;
    sockets = sockets.ofAgent whole name;
    credentials = credentials.ofAgent name;
  };
in
{
  inherit
    acl
    checked
    checks
    credentials
    names
    sockets
    topology
    sources
    ;

  render =
    value:
    let
      whole = checked value;
    in
    {
      version = 1;
      inherit (whole) paths;
      redis = {
        inherit (whole.redis) settings socket;
        acl = acl.lines whole;
      };
      identities = credentials.identities whole;
      agents = builtins.mapAttrs (agent whole) whole.agents;
      credentials = credentials.table whole;
    };
}
