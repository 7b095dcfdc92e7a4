# What two machines have in common: the bridge's settings, and their secrets as files. On one of
# them the bridge is with its rooms, on the other with its agents.
{ ... }:
{
  imports = [ ./slow-bridge.nix ];

  services.a2a-bridge = {
    homeserver = {
      url = "http://192.168.1.2:8008";
      domain = "corral.test";
    };
    asTokenFile = "/run/given/bridge-as-token";
    hsTokenFile = "/run/given/bridge-hs-token";
    agents.scout = {
      url = "http://192.168.1.1:8080/a2a/scout/";
      display_name = "Scout";
      tokenFile = "/run/given/gateway-bridge";
      idempotent = true;
    };
    settings = {
      txn_conflict = "epoch";
      # The other machine boots for a minute, and mentions wait for it.
      request_timeout_s = 20;
      attempts_max = 50;
      retry_max_s = 5;
    };
  };

  # Stands for agenix or sops-nix, which give both machines the same.
  systemd.services.given-secrets = rec {
    wantedBy = [ "multi-user.target" ];
    requiredBy = [
      "a2a-bridge-registration.service"
      "a2a-bridge.service"
    ];
    before = requiredBy;
    serviceConfig = {
      Type = "oneshot";
      RemainAfterExit = true;
    };
    script = ''
      umask 077
      mkdir -p /run/given
      cd /run/given
      echo given-to-both-as-the-bridges-token >bridge-as-token
      echo given-to-both-as-the-homeservers-token >bridge-hs-token
      echo given-to-the-bridge-for-the-gateway >gateway-bridge
      printf given-to-the-bridge-for-the-database >bridge-database-password
      echo "postgresql://a2a-bridge:$(cat bridge-database-password)@192.168.1.2/a2a-bridge" \
        >bridge-database
    '';
  };
}
