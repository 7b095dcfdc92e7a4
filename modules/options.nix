# The options of cowboy. What they mean for files and units is in the modules beside this one.
{ lib, pkgs, ... }:
let
  inherit (lib) mkEnableOption mkOption types;
  format = pkgs.formats.json { };
  optionTypes = import ./option-types.nix { inherit lib; };
  agentOptions = import ./agent-options.nix { inherit lib format; };

  destination = types.submodule {
    options = {
      address = mkOption {
        type = types.strMatching "[0-9]{1,3}([.][0-9]{1,3}){3}(/[0-9]{1,2})?";
        example = "203.0.113.7";
        description = "IPv4 address, or network with its prefix length.";
      };
      protocol = mkOption {
        type = types.enum [
          "tcp"
          "udp"
        ];
        default = "tcp";
        example = "udp";
        description = "Protocol above IP.";
      };
      port = mkOption {
        type = types.port;
        example = 443;
        description = "Port at the destination.";
      };
    };
  };

  # Of services.tamq, for those that have no TAMQ, too: assertions tell them.
  tamqDirectory = mkOption {
    type = types.str;
    default = "/run/tamq";
    internal = true;
    description = "Has the folder with the TAMQ's socket of each user.";
  };

  namespace = {
    name = mkOption {
      type = types.strMatching "[a-z][a-z0-9-]{0,14}";
      default = "cowboy-ns";
      example = "agents-ns";
      description = ''
        Name of the network namespace that holds Redis, the daemons and the runners. With `egress`
        the host has an interface of that name, so it has at most 15 bytes.
      '';
    };
    egress = mkOption {
      type = types.listOf destination;
      default = [ ];
      example = [
        {
          address = "203.0.113.7";
          port = 443;
        }
      ];
      description = ''
        What can be reached from inside the namespace. Without an entry the namespace has a loopback
        interface and nothing else. Names are not resolved here: to resolve them inside, a name
        server must be among the entries.
      '';
    };
    hostAddress = mkOption {
      type = types.strMatching "[0-9]{1,3}([.][0-9]{1,3}){3}";
      default = "169.254.77.1";
      example = "10.213.0.1";
      description = "Address of the host's end, in a /30 of its own; used only with `egress`.";
    };
    insideAddress = mkOption {
      type = types.strMatching "[0-9]{1,3}([.][0-9]{1,3}){3}";
      default = "169.254.77.2";
      example = "10.213.0.2";
      description = "Address inside the namespace, in the same /30; used only with `egress`.";
    };
  };

  redis = {
    port = mkOption {
      type = types.port;
      default = 6379;
      example = 6380;
      description = "Port on the namespace's loopback interface.";
    };
    maxmemory = mkOption {
      type = types.strMatching "[1-9][0-9]*(k|kb|m|mb|g|gb)?";
      default = "256mb";
      example = "1gb";
      description = ''
        At this size Redis refuses to take more (`noeviction`); nothing that was taken is dropped.
      '';
    };
    settings = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        maxclients = "1000";
      };
      description = ''
        More settings of the server: `maxclients`, `acllog-max-len`, `auto-aof-rewrite-min-size`,
        `auto-aof-rewrite-percentage`. Those that durability rests on cannot be changed.
      '';
    };
  };
in
{
  options.services.cowboy = {
    enable = mkEnableOption "cowboy, which carries messages to AI agents and their answers back";

    package = mkOption {
      type = types.package;
      default = pkgs.corral or (pkgs.callPackage ../services/cowboy/package.nix { });
      defaultText = lib.literalExpression "pkgs.corral, from the overlay or built here";
      description = "The package with the program `cowboy`.";
    };

    agents = mkOption {
      type = types.attrsOf (types.submodule agentOptions);
      default = { };
      example = lib.literalExpression ''
        {
          scout = {
            runner = { kind = "exec"; command = [ "my-agent" ]; };
            sources.a2a = { };
            path = [ pkgs.my-agent ];
          };
        }
      '';
      description = "The agents of this host.";
    };

    inherit namespace redis tamqDirectory;

    runtimeDir = mkOption {
      type = optionTypes.runDirectory;
      default = "/run/cowboy";
      example = "/run/agents";
      description = "Holds the sockets, the ACL file and the operator's environment.";
    };

    metrics.directory = mkOption {
      type = types.nullOr (types.strMatching "/[A-Za-z0-9._/-]+");
      default = null;
      example = "/var/lib/node-exporter-text-files";
      description = ''
        Where each daemon writes `cowboy-<agent>.prom` for the textfile collector of a node
        exporter; made for the group `corral-metrics`. Unset: no metrics are written.
      '';
    };

    metrics.rules = optionTypes.ourFile ../monitoring/cowboy.rules.yml ''
      Alert rules on these metrics, each with a runbook:
      `services.prometheus.ruleFiles = [ config.services.cowboy.metrics.rules ];`
    '';

    metrics.dashboard = optionTypes.ourFile ../monitoring/cowboy.dashboard.json ''
      A dashboard of these metrics for Grafana: the `options.path` of a provider in
      `services.grafana.provision.dashboards.settings`.
    '';

    operator.environmentFile = mkOption {
      type = types.path;
      readOnly = true;
      description = ''
        Where the operator's environment is: `REDIS_URL`, which holds no password, `REDISCLI_AUTH`
        and `COWBOY_REDIS_NETNS`. Made when the host starts; only root reads it, and root's `cowboy`
        finds it by itself.
      '';
    };

    secrets = {
      directory = mkOption {
        type = optionTypes.secretPath;
        default = "/var/lib/cowboy/secrets";
        example = "/persist/cowboy-secrets";
        description = ''
          Where passwords are made on the first boot, one file for each identity of Redis. Only root
          reads it.
        '';
      };
      files = mkOption {
        type = types.attrsOf optionTypes.secretPath;
        default = { };
        example = {
          redis-agent-scout = "/run/secrets/redis-agent-scout";
        };
        description = ''
          Passwords that are given as files (by agenix, sops-nix or by hand) instead of being made,
          by the name of the credential: `redis-agent-<agent>`, `redis-source.<agent>.<source>`,
          `redis-operator`, `redis-metrics`. A file holds 16 to 512 of `A-Z a-z 0-9 . _ ~ + / = -`,
          with or without a newline at its end.
        '';
      };
    };
  };
}
