# The network namespace: one unit makes it, its members are bound to that unit. Inside there is a
# loopback interface and, when something outside may be reached, one end of a pair.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.cowboy;
  derived = import ./derived.nix { inherit lib cfg; };
  inherit (cfg.namespace) egress;

  allow =
    entry: "    ip daddr ${entry.address} ${entry.protocol} dport ${toString entry.port} accept\n";

  answers = lib.optionalString (egress != [ ]) "    ct state established,related accept\n";

  rules = ''
    table inet cowboy {
      chain input {
        type filter hook input priority 0; policy drop;
        iif lo accept
    ${answers}  }
      chain forward {
        type filter hook forward priority 0; policy drop;
      }
      chain output {
        type filter hook output priority 0; policy drop;
        oif lo accept
    ${answers}${lib.concatMapStrings allow egress}  }
    }
  '';

  membership = {
    version = 1;
    inherit (cfg.namespace) name;
    path = derived.namespacePath;
    inherit (derived) members;
  };
in
{
  config = lib.mkIf cfg.enable {
    systemd.services.cowboy-ns = {
      description = "Network namespace of cowboy";
      wantedBy = [ "multi-user.target" ];
      path = [
        pkgs.iproute2
        pkgs.nftables
        pkgs.util-linux
      ];
      # A restart in one step is passed on to the members; a stop and a start would end them.
      stopIfChanged = false;
      environment = {
        NAMESPACE = cfg.namespace.name;
        RULES = "/etc/cowboy/namespace.nft";
      }
      // lib.optionalAttrs (egress != [ ]) {
        HOST_ADDRESS = cfg.namespace.hostAddress;
        INSIDE_ADDRESS = cfg.namespace.insideAddress;
      };
      restartTriggers = [ rules ];
      script = builtins.readFile ./namespace-up.sh;
      preStop = builtins.readFile ./namespace-down.sh;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        # What is mounted at /run/netns must be seen by everybody. Any sandbox of the file system
        # would give this unit mounts of its own.
        PrivateMounts = false;
        CapabilityBoundingSet = [
          "CAP_NET_ADMIN"
          "CAP_SYS_ADMIN"
        ];
        NoNewPrivileges = true;
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        RestrictRealtime = true;
        RestrictSUIDSGID = true;
        SystemCallArchitectures = "native";
        UMask = "0022";
      };
    };

    environment.etc."cowboy/namespace.nft".text = rules;
    environment.etc."cowboy/namespace.json".text = builtins.toJSON membership + "\n";

    networking = lib.mkIf (egress != [ ]) {
      nat = {
        enable = true;
        internalInterfaces = [ cfg.namespace.name ];
      };
      dhcpcd.denyInterfaces = [ cfg.namespace.name ];
      networkmanager.unmanaged = [ "interface-name:${cfg.namespace.name}" ];
    };
  };
}
