# What the bridge's two processes have in common: each works on the jobs of both, so each needs the
# same agents and the same settings. Secrets are files on both hosts, as agenix, sops-nix or a
# person puts them there.
#
# 192.0.2.10 and 192.0.2.20 stand for the hosts' addresses in a network that is theirs alone, such
# as WireGuard's: the token of the gateway, the bridge's tokens and what is said cross it as they
# are. Elsewhere put a server with TLS (nginx) before the gateway and Synapse, name `https://` here,
# and give PostgreSQL a certificate.
{ ... }:
let
  secret = name: "/run/secrets/${name}";
in
{
  services.a2a-bridge = {
    homeserver = {
      url = "http://192.0.2.10:8008";
      domain = "example.org";
    };
    asTokenFile = secret "bridge-as-token";
    hsTokenFile = secret "bridge-hs-token";

    agents.scout = {
      url = "http://192.0.2.20:8080/a2a/scout/";
      display_name = "Scout";
      tokenFile = secret "gateway-bridge";
      # The gateway knows a message that comes again: a lost call is repeated, and runs once.
      idempotent = true;
    };

    settings = {
      # Synapse has SQLite, on the other host for one of the two.
      txn_conflict = "epoch";
      # A call to a host that is gone is given up after this, and tried again for some ten minutes:
      # what is said while the agents' host boots is answered.
      request_timeout_s = 20;
      attempts_max = 25;
    };
  };
}
