# The gateway: one unit that makes the tokens that are missing, and the server itself, which is a
# member of the agents' namespace. Its socket is reached from outside of it; with `listen`, a proxy
# of systemd passes on to it what comes from other hosts.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.a2a-gateway;
  derived = import ../../modules/gateway-derived.nix { inherit lib config; };
  hardening = import ./hardening.nix;
  inherit (derived) user metricsDirectory;
  hasMetrics = metricsDirectory != null;

  tokens = "${derived.tokensUnit}.service";

  # Checked by the program that reads it, when it is built. The secrets are not there then.
  settingsFile =
    pkgs.runCommand "a2a-gateway-settings.json"
      {
        text = derived.settingsText;
        passAsFile = [ "text" ];
        preferLocalBuild = true;
        nativeBuildInputs = [ cfg.package ];
      }
      ''
        GATEWAY_CONFIG="$textPath" corral-gateway check-config
        cp "$textPath" "$out"
      '';

  listens = cfg.listen != [ ];
  proxy = "${config.systemd.package}/lib/systemd/systemd-socket-proxyd";

  # Its settings name the secrets that the running service has.
  operator = import ../operator.nix {
    inherit config lib pkgs;
    inherit (cfg) package;
    name = "corral-gateway";
    service = derived.unit;
    what = "gateway";
    variable = "GATEWAY_CONFIG";
  };

  # No start without the tokens.
  holder = {
    requires = [ tokens ];
    after = [ tokens ];
  };

  # The password of its source, and the namespace, for each agent that is served. A part of the
  # agents' options and no definition of agents: whoever serves all of them, as the preset does,
  # would define agents by the agents that are defined.
  served =
    { name, ... }:
    {
      sources = lib.mkIf (cfg.enable && derived.agents ? ${name}) {
        ${derived.agents.${name}.source}.client.units = [ "${derived.unit}.service" ];
      };
    };
in
{
  options.services.cowboy.agents = lib.mkOption {
    type = lib.types.attrsOf (lib.types.submodule served);
  };

  config = lib.mkIf cfg.enable {
    environment.etc."a2a-gateway/settings.json".source = settingsFile;
    environment.systemPackages = [ operator ];

    users.users.${user} = {
      isSystemUser = true;
      group = user;
      description = "A2A server in front of agents";
    };
    # Who is in it may connect.
    users.groups.${user} = { };

    systemd.sockets = lib.mkIf listens {
      ${derived.listenUnit} = {
        description = "Addresses of the gateway for other hosts";
        wantedBy = [ "sockets.target" ];
        listenStreams = cfg.listen;
        socketConfig = {
          # The private network may come up later.
          FreeBind = true;
          # A host that lost its power says no goodbye.
          KeepAlive = true;
          KeepAliveTimeSec = "60s";
          KeepAliveIntervalSec = "10s";
          KeepAliveProbes = 6;
        };
      };
    };

    systemd.services = lib.mkMerge [
      (lib.mkIf listens {
        ${derived.listenUnit} = {
          description = "Passes on to the gateway what comes from other hosts";
          requires = [ "${derived.listenUnit}.socket" ];
          after = [
            "${derived.listenUnit}.socket"
            "${derived.unit}.service"
          ];
          serviceConfig = (import ./hardening-listen.nix) // {
            Type = "exec";
            ExecStart = "${proxy} ${derived.socket}";
            DynamicUser = true;
            # Who is in it may connect to the socket.
            SupplementaryGroups = [ user ];
            Restart = "on-failure";
          };
        };
      })
      {
        ${derived.tokensUnit} = {
          description = "Tokens of the gateway's clients, made when missing";
          # A restart in one step is passed on to who holds them; a stop would end them.
          stopIfChanged = false;
          environment.TOKENS = lib.concatStringsSep " " derived.made;
          unitConfig.RequiresMountsFor = [ derived.tokens ];
          script = builtins.readFile ../make-tokens.sh;
          # The kernel's random numbers are below /proc/sys.
          serviceConfig = removeAttrs hardening [ "ProcSubset" ] // {
            Type = "oneshot";
            RemainAfterExit = true;
            User = user;
            Group = user;
            StateDirectory = derived.tokensUnit;
            StateDirectoryMode = "0700";
            PrivateNetwork = true;
            RestrictAddressFamilies = [ "AF_UNIX" ];
          };
        };

        ${derived.unit} = lib.mkMerge [
          (import ../unit.nix)
          holder
          {
            description = "A2A server in front of agents";
            # It waits for Redis by itself, and takes messages meanwhile.
            restartTriggers = [ settingsFile ];
            environment.GATEWAY_CONFIG = "/etc/a2a-gateway/settings.json";
            serviceConfig = hardening // {
              ExecStart = "${lib.getExe' cfg.package "corral-gateway"} run";
              User = user;
              Group = user;
              LoadCredential = derived.loadCredential;
              StateDirectory = "a2a-gateway";
              StateDirectoryMode = "0700";
              RuntimeDirectory = "a2a-gateway";
              RuntimeDirectoryMode = "0750";
              SupplementaryGroups = lib.optional hasMetrics "corral-metrics";
              ReadWritePaths = lib.optional hasMetrics metricsDirectory;
              RestrictAddressFamilies = [
                "AF_INET"
                "AF_UNIX"
              ];
            };
          }
        ];
      }
      # A bridge of this host may have a token that is made here, and may connect.
      (lib.mkIf config.services.a2a-bridge.enable {
        a2a-bridge = lib.mkMerge [
          holder
          { serviceConfig.SupplementaryGroups = [ user ]; }
        ];
      })
    ];
  };
}
