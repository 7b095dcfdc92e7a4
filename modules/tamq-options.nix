# The options of TAMQ: a queue for each user, which wakes that user's sessions.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  format = pkgs.formats.json { };
  optionTypes = import ./option-types.nix { inherit lib; };
  host = config;

  inherit (import ./settings-options.nix { inherit lib; }) setting count;

  settings =
    user:
    types.submodule {
      freeformType = format.type;
      options = {
        gita_repos = mkOption {
          type = optionTypes.secretPath;
          default = "${host.users.users.${user}.home or "/var/empty"}/.config/gita/repos.csv";
          defaultText = lib.literalMD "gita's own, in the user's home";
          example = "/srv/alice/gita/repos.csv";
          description = ''
            The registry of repositories, which gita writes. It is read again when it changes, and
            may be made later.
          '';
        };
        profiles = setting types.path "/etc/tamq-profiles.toml" ''
          A TOML file with profiles of programs beside the built-in ones.
        '';
        ack_deadline_ms = count 60000 ''
          How long an acknowledgement may take before the message is written again.
        '';
        lease_ms = count 60000 "How long one attempt may take.";
        retry_delays_ms = setting (types.nonEmptyListOf types.ints.positive) [
          1000
          10000
        ] "Pauses after failed attempts, in order; the last one repeats.";
        open_messages_max = count 1000 "Messages that are neither delivered nor failed.";
        connections_max = count 256 "Connections at one time.";
        read_timeout_s = setting types.number 5 "How long a client may take for its line.";
        idle_look_s = setting types.number 10 ''
          How often a session without messages is looked at.
        '';
        retention_days = setting types.number 7 ''
          How long the bodies of messages that are delivered or failed are kept.
        '';
        capture_dir = setting optionTypes.secretPath "/var/lib/tamq/alice/capture" ''
          Where requests, answers and attempts are logged. Below `/var/lib/tamq/<name>` it is made;
          any other folder must exist and be the user's. Unset: nothing is logged.
        '';
        capture_bodies = setting types.bool true ''
          Whether the capture has bodies and metadata, too.
        '';
        capture_file_max_bytes = count 1048576 "Of one file of the capture.";
        capture_files = count 10 "Files of the capture that are kept.";
      };
    };

  user =
    { name, ... }:
    {
      options = {
        enable = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = ''
            Whether this user has a TAMQ. Its queue stays where it is when there is none any more.
          '';
        };
        name = mkOption {
          type = optionTypes.userName;
          default = name;
          readOnly = true;
          internal = true;
          description = "The user's name.";
        };
        settings = mkOption {
          type = settings name;
          default = { };
          example = {
            retention_days = 7;
          };
          description = ''
            Settings of this TAMQ, by the names that the reference of its settings has; what is
            unset has the default that is named there. They are checked when the host is built.
            Not for secrets: they are in the Nix store.
          '';
        };
      };
    };
in
{
  options.services.tamq = {
    package = mkOption {
      type = types.package;
      default =
        pkgs.tamq or (pkgs.callPackage ../services/tamq/package.nix {
          corral = pkgs.callPackage ../services/cowboy/package.nix { };
        });
      defaultText = lib.literalExpression "pkgs.tamq, from the overlay or built here";
      description = "The package with the program `tamq`.";
    };

    runtimeDir = mkOption {
      type = optionTypes.runDirectory;
      default = "/run/tamq";
      example = "/run/queues";
      description = ''
        Holds a folder for each user, of mode 0700, with the socket of the user's TAMQ. Commands
        and clients of the user find it by themselves.
      '';
    };

    users = mkOption {
      type = types.attrsOf (types.submodule user);
      default = { };
      example = lib.literalExpression ''
        {
          alice.settings.retention_days = 7;
        }
      '';
      description = ''
        The users that have a TAMQ, a durable queue that wakes live agent sessions in the user's
        terminals. Declare the users themselves in `users.users`.
      '';
    };
  };
}
