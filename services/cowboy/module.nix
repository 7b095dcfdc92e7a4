# The two units of an agent: the daemon, which has the ledger and a Redis identity, and the
# runner, which has the agent's user and starts its runs.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.cowboy;
  derived = import ../../modules/derived.nix { inherit lib cfg; };
  hardening = import ./hardening.nix;
  inherit (derived) agents names paths;

  cowboy = lib.getExe' cfg.package "cowboy";
  metricsDirectory = cfg.metrics.directory;
  hasMetrics = metricsDirectory != null;
  metricsGroup = "corral-metrics";
  each = f: lib.mkMerge (lib.mapAttrsToList f agents);

  # Checked by the program that reads it, when it is built.
  sourcesFile =
    agent:
    pkgs.runCommand "cowboy-${agent}-sources.json"
      {
        text = derived.sourcesText agent;
        passAsFile = [ "text" ];
        preferLocalBuild = true;
        nativeBuildInputs = [ cfg.package ];
      }
      ''
        cowboy check-config "$textPath"
        cp "$textPath" "$out"
      '';

  settingsText =
    options:
    builtins.toJSON (
      options.settings
      // {
        config_dir = paths.config;
        state_dir = paths.state;
        runtime_dir = paths.runtime;
        runner_dir = derived.runnerRuntime;
        redis_url = derived.redisUrl;
      }
      // lib.optionalAttrs hasMetrics { metrics_dir = metricsDirectory; }
    )
    + "\n";

  common = import ../unit.nix;

  daemon =
    agent: options:
    let
      user = names.daemonUser agent;
      redisPassword = (derived.corral.credentials.ofAgent agent).redis-password;
    in
    {
      ${derived.serviceName (names.daemonUnit agent)} = lib.mkMerge [
        common
        derived.membership
        derived.holder
        {
          description = "cowboy, the daemon of agent ${agent}";
          wants = [
            derived.units.redis
            (names.runnerUnit agent)
          ];
          after = [ derived.units.redis ];
          restartTriggers = [
            (sourcesFile agent)
            (settingsText options)
          ];
          environment = {
            COWBOY_CONFIG = "/etc/cowboy/${agent}/settings.json";
          }
          # Its sessions answer by `cowboy reply`, and have this user.
          // lib.optionalAttrs (derived.wakes options) { COWBOY_RUNNER_USER = options.user; };
          serviceConfig = hardening.daemon // {
            ExecStart = "${cowboy} run ${agent}";
            User = user;
            Group = user;
            LoadCredential = [ (derived.loadCredential "redis-password" redisPassword) ];
            StateDirectory = "cowboy/${agent}";
            StateDirectoryMode = "0700";
            SupplementaryGroups = lib.optional hasMetrics metricsGroup;
            ReadWritePaths = [
              (derived.daemonDirectory agent)
            ]
            ++ lib.optional hasMetrics metricsDirectory;
          };
        }
      ];
    };

  runner =
    agent: options:
    {
      ${derived.serviceName (names.runnerUnit agent)} = lib.mkMerge [
        common
        derived.membership
        {
          description = "cowboy, the runner of agent ${agent}";
          inherit (options) path;
          restartTriggers = [
            (sourcesFile agent)
            (settingsText options)
          ];
          environment = {
            COWBOY_CONFIG = "/etc/cowboy/${agent}/settings.json";
            # This unit's environment is the agent's: its path, files and credentials.
            COWBOY_RUNS_INHERIT = "true";
            COWBOY_DAEMON_USER = names.daemonUser agent;
          };
          serviceConfig = hardening.runner // {
            ExecStart = "${cowboy} runner ${agent}";
            User = options.user;
            EnvironmentFile = options.environmentFiles;
            LoadCredential = lib.mapAttrsToList (name: file: "${name}:${file}") options.credentials;
            StateDirectory = "cowboy-agents/${agent}";
            StateDirectoryMode = "0700";
            WorkingDirectory = derived.agentHome agent;
          };
        }
      ];
    };

  users =
    agent: options:
    {
      ${names.daemonUser agent} = {
        isSystemUser = true;
        group = names.daemonUser agent;
        description = "Daemon of the agent ${agent}";
      };
    }
    // lib.optionalAttrs options.createUser {
      ${options.user} = {
        isSystemUser = true;
        group = options.user;
        home = derived.agentHome agent;
        description = "Agent ${agent}";
      };
    };

  groups =
    agent: options:
    {
      ${names.daemonUser agent} = { };
    }
    // lib.optionalAttrs options.createUser { ${options.user} = { }; };

  etc = agent: options: {
    "cowboy/${agent}/sources.json".source = sourcesFile agent;
    "cowboy/${agent}/settings.json".text = settingsText options;
  };

  # The daemon's directory may be entered by all: its sockets say who is served. The runner's
  # is for the agent's user and the daemon alone, and keeps the records of runs when a unit ends.
  directories = agent: options: {
    ${derived.daemonDirectory agent}.d = {
      mode = "0755";
      user = names.daemonUser agent;
      group = names.daemonUser agent;
    };
    ${derived.runnerRuntime}.d = {
      mode = "0755";
      user = "root";
      group = "root";
    };
    ${derived.runnerDirectory agent}.d = {
      mode = "0710";
      user = options.user;
      group = names.daemonUser agent;
    };
  };
in
{
  config = lib.mkIf cfg.enable {
    environment.etc = each etc;
    environment.systemPackages = [ cfg.package ];
    systemd.services = lib.mkMerge [
      (each daemon)
      (each runner)
    ];
    systemd.tmpfiles.settings."10-cowboy" = lib.mkMerge [
      (each directories)
      (lib.mkIf hasMetrics {
        # Several users write into it, and nobody replaces the file of another.
        ${metricsDirectory}.d = {
          mode = "1775";
          user = "root";
          group = metricsGroup;
        };
      })
    ];
    users.users = lib.mkMerge (lib.mapAttrsToList users derived.withUsers);
    users.groups = lib.mkMerge (
      lib.mapAttrsToList groups derived.withUsers
      ++ [ (lib.mkIf hasMetrics { ${metricsGroup} = { }; }) ]
    );
  };
}
