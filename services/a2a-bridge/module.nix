# The bridge: one unit that makes the registration, before Synapse and before the bridge, and the
# bridge itself.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.a2a-bridge;
  synapse = config.services.matrix-synapse;
  derived = import ../../modules/bridge-derived.nix { inherit lib config; };
  hardening = import ./hardening.nix;
  inherit (derived) user;

  registration = "${derived.registrationUnit}.service";

  # Checked by the program that reads it, when it is built. The secrets are not there then.
  settingsFile =
    pkgs.runCommand "a2a-bridge-settings.json"
      {
        text = derived.settingsText;
        passAsFile = [ "text" ];
        preferLocalBuild = true;
        nativeBuildInputs = [ cfg.package ];
      }
      ''
        export BRIDGE_AS_TOKEN=not-the-token-of-the-bridge
        export BRIDGE_HS_TOKEN=not-the-token-of-the-homeserver
        export BRIDGE_DATABASE=postgresql:///not-the-database
        BRIDGE_CONFIG="$textPath" a2a-bridge check-config
        cp "$textPath" "$out"
      '';

  variable = name: lib.toUpper (lib.replaceStrings [ "-" ] [ "_" ] name);

  config' = "/etc/a2a-bridge/settings.json";
  program = lib.getExe' cfg.package "a2a-bridge";

  operator = import ../operator.nix {
    inherit config lib pkgs;
    inherit (cfg) package;
    name = "a2a-bridge";
    service = derived.unit;
    what = "bridge";
    variable = "BRIDGE_CONFIG";
    secrets = derived.loadCredentials derived.credentials;
  };

  # No start without the registration; a restart of that unit, which is how a token or an agent
  # reaches the homeserver, restarts both sides.
  holder = {
    requires = [ registration ];
    after = [ registration ];
  };
in
{
  config = lib.mkIf cfg.enable {
    environment.etc."a2a-bridge/settings.json".source = settingsFile;
    environment.systemPackages = [ operator ];

    users.users.${user} = {
      isSystemUser = true;
      group = user;
      description = "Bridge from Matrix rooms to A2A agents";
    };
    users.groups.${user} = { };

    services.postgresql = lib.mkIf cfg.database.createLocally {
      enable = true;
      ensureDatabases = [ user ];
      ensureUsers = [
        {
          name = user;
          ensureDBOwnership = true;
        }
      ];
    };

    services.matrix-synapse = lib.mkIf synapse.enable {
      settings.app_service_config_files = [ derived.registrationFile ];
    };

    systemd.services = lib.mkMerge [
      {
        ${derived.registrationUnit} = {
          description = "Tokens of the bridge, made when missing, and its registration";
          # A restart in one step is passed on to both sides; a stop would end them.
          stopIfChanged = false;
          restartTriggers = [ settingsFile ];
          path = [ cfg.package ];
          environment = {
            BRIDGE_CONFIG = config';
            # The registration says nothing of the ledger.
            BRIDGE_DATABASE = "postgresql:///not-the-database";
            TOKENS = lib.concatStringsSep " " derived.made;
          }
          // lib.mapAttrs' (name: lib.nameValuePair "BRIDGE_${variable name}_FILE") (
            lib.genAttrs derived.made derived.tokenFile
          );
          unitConfig.RequiresMountsFor = [ derived.state ];
          script = builtins.readFile ../make-tokens.sh + builtins.readFile ./registration.sh;
          serviceConfig = hardening // {
            Type = "oneshot";
            RemainAfterExit = true;
            User = user;
            # Whoever reads the file, and nobody else.
            Group = derived.registrationGroup;
            LoadCredential = derived.loadCredentials derived.given;
            StateDirectory = "a2a-bridge";
            StateDirectoryMode = "0700";
            RuntimeDirectory = derived.registrationUnit;
            RuntimeDirectoryMode = "0750";
            PrivateNetwork = true;
            RestrictAddressFamilies = [ "AF_UNIX" ];
          };
        };

        ${derived.unit} = lib.mkMerge [
          (import ../unit.nix)
          holder
          {
            description = "Bridge from Matrix rooms to A2A agents";
            # It waits for the database by itself; at a shutdown it still writes what it did.
            after = [
              "network.target"
            ]
            ++ lib.optional cfg.database.createLocally "postgresql.service";
            restartTriggers = [ settingsFile ];
            environment.BRIDGE_CONFIG = config';
            serviceConfig = hardening // {
              ExecStart = "${program} run";
              User = user;
              Group = user;
              LoadCredential = derived.loadCredentials derived.credentials;
              # What is in work gets its time.
              TimeoutStopSec = lib.mkIf (cfg.settings.shutdown_timeout_s != null) (
                lib.mkForce "${toString (cfg.settings.shutdown_timeout_s + 5)}s"
              );
              RestrictAddressFamilies = [
                "AF_INET"
                "AF_INET6"
                "AF_UNIX"
              ];
            };
          }
        ];
      }
      (lib.mkIf synapse.enable { matrix-synapse = holder; })
    ];
  };
}
