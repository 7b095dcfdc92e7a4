# Secrets: made on the first boot, or given as files. Here are only their names and places; the
# ACL file gets hashes of them, and every unit that holds one gets it by LoadCredential=.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.cowboy;
  derived = import ./derived.nix { inherit lib cfg; };
  inherit (derived) paths;
  server = config.services.redis.servers.cowboy;

  acl = lib.concatStringsSep "\n" (derived.corral.acl.lines derived.topology) + "\n";

  table = lib.concatMapStrings (
    credential:
    let
      origin = if cfg.secrets.files ? ${credential} then "given" else "made";
    in
    "${credential} ${derived.secretFile credential} ${origin}\n"
  ) (lib.attrNames derived.credentials);

  files = map derived.secretFile (lib.attrNames derived.credentials);

  environment = {
    SECRETS = "/etc/cowboy/secrets.list";
    SECRETS_DIRECTORY = cfg.secrets.directory;
    ACL = "/etc/cowboy/redis.acl.in";
    ACL_FILE = derived.aclFile;
    ACL_OWNER = "${server.user}:${server.group or server.user}";
    OPERATOR_OWNER = "root:root";
    OPERATOR_FILE = derived.environmentFile;
    REDIS_URL = derived.redisUrl;
    REDIS_NETNS = cfg.namespace.name;
  };

  # What a root unit that reads secrets and writes two files needs not have.
  hardening = import ../services/hardening.nix // {
    CapabilityBoundingSet = [
      "CAP_CHOWN"
      "CAP_DAC_READ_SEARCH"
      "CAP_FOWNER"
    ];
    MemoryDenyWriteExecute = true;
    PrivateNetwork = true;
    PrivateTmp = true;
    ProtectControlGroups = true;
    ProtectSystem = "strict";
    RestrictAddressFamilies = [ "AF_UNIX" ];
    RestrictNamespaces = true;
  };
in
{
  config = lib.mkIf cfg.enable {
    services.cowboy.operator.environmentFile = derived.environmentFile;

    # Where a person's commands look, if it is not where they look by themselves.
    environment.variables = lib.mkIf (paths.runtime != "/run/cowboy") {
      COWBOY_RUNTIME_DIR = paths.runtime;
      COWBOY_OPERATOR_ENV = derived.environmentFile;
    };

    environment.etc."cowboy/redis.acl.in".text = acl;
    environment.etc."cowboy/secrets.list".text = table;

    # Several units write below these, so none of them owns them.
    systemd.tmpfiles.settings."10-cowboy" = {
      ${paths.runtime}.d = {
        mode = "0755";
        user = "root";
        group = "root";
      };
      ${paths.state}.d = {
        mode = "0755";
        user = "root";
        group = "root";
      };
      ${cfg.secrets.directory}.d = {
        mode = "0700";
        user = "root";
        group = "root";
      };
    };

    systemd.services.cowboy-secrets = {
      description = "Secrets of cowboy, made when missing, and the ACL of its Redis";
      wantedBy = [ "multi-user.target" ];
      # A restart in one step is passed on to the holders of secrets; a stop would end them.
      stopIfChanged = false;
      restartTriggers = [
        acl
        table
      ];
      unitConfig.RequiresMountsFor = [ cfg.secrets.directory ];
      inherit environment;
      script = builtins.readFile ./secrets.sh;
      serviceConfig = hardening // {
        Type = "oneshot";
        RemainAfterExit = true;
        ReadWritePaths = [
          paths.runtime
          cfg.secrets.directory
        ];
      };
    };

    # A secret that was replaced takes effect by itself: when the ACL is no longer that of the
    # secrets, all who hold one are restarted with the unit above.
    systemd.paths.cowboy-rotate = {
      description = "Watches the secrets of cowboy";
      wantedBy = [ "multi-user.target" ];
      # By default a path unit is started before all services: that of the secrets, too.
      unitConfig.DefaultDependencies = false;
      after = [ derived.units.secrets ];
      before = [ "shutdown.target" ];
      conflicts = [ "shutdown.target" ];
      pathConfig.PathChanged = files;
    };
    systemd.services.cowboy-rotate = {
      description = "Restarts what holds a secret of cowboy that was replaced";
      after = [ derived.units.secrets ];
      environment = environment // {
        RESTART = derived.units.secrets;
        HELD = "/run/cowboy-rotate/held";
      };
      path = [ config.systemd.package ];
      script = builtins.readFile ./secrets.sh;
      serviceConfig = hardening // {
        Type = "oneshot";
        # Killed, it goes on with what it has written down.
        Restart = "on-abnormal";
        RuntimeDirectory = "cowboy-rotate";
        RuntimeDirectoryPreserve = "yes";
      };
      startLimitIntervalSec = 0;
    };
  };
}
