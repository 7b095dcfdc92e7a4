# One TAMQ for each user: a unit that runs as that user. The sessions that it writes to are
# nothing of the unit's, so they go on when it is stopped, killed or replaced.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.tamq;
  derived = import ../../modules/tamq-derived.nix { inherit lib cfg; };
  hardening = import ./hardening.nix;
  inherit (derived) users;

  tamq = lib.getExe' cfg.package "tamq";
  each = f: lib.mkMerge (lib.mapAttrsToList f users);

  # Checked by the program that reads it, when it is built.
  settingsFile =
    user: options:
    pkgs.runCommand "tamq-${user}-settings.json"
      {
        text = derived.settingsText user options;
        passAsFile = [ "text" ];
        preferLocalBuild = true;
        nativeBuildInputs = [ cfg.package ];
      }
      ''
        tamq check-config "$textPath"
        cp "$textPath" "$out"
      '';

  unit = user: options: {
    ${derived.unitName user} = lib.mkMerge [
      (import ../unit.nix)
      {
        description = "TAMQ, the message queue of ${user}'s sessions";
        restartTriggers = [ (settingsFile user options) ];
        environment.TAMQ_CONFIG = "/etc/tamq/${user}/settings.json";
        serviceConfig = hardening // {
          ExecStart = "${tamq} serve";
          User = user;
          StateDirectory = "tamq/${user}";
          StateDirectoryMode = "0700";
          RuntimeDirectory = "${lib.removePrefix "/run/" cfg.runtimeDir}/${user}";
          RuntimeDirectoryMode = "0700";
          # The sockets of sessions under `tamq run` are in there, and outlive the service.
          RuntimeDirectoryPreserve = "yes";
          ReadWritePaths = derived.foreignFolders user options;
        };
      }
    ];
  };

  etc = user: options: {
    "tamq/${user}/settings.json".source = settingsFile user options;
  };
in
{
  config = lib.mkIf (users != { }) {
    services.cowboy.tamqDirectory = cfg.runtimeDir;
    environment.etc = each etc;
    environment.systemPackages = [ cfg.package ];
    systemd.services = each unit;
  };
}
