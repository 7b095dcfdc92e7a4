# The units of PostgreSQL and Synapse on the Debian machine of `./corral vm`, from the options by
# which nixpkgs' own modules make them on NixOS. What they run is in the image; see servers.py.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  postgresql = config.services.postgresql;
  synapse = config.services.matrix-synapse;

  database = name: ''
    SELECT 'CREATE DATABASE "${name}"'
    WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '${name}') \gexec
  '';
  role =
    one:
    ''
      SELECT 'CREATE ROLE "${one.name}" LOGIN'
      WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${one.name}') \gexec
    ''
    + lib.optionalString one.ensureDBOwnership ''
      ALTER DATABASE "${one.name}" OWNER TO "${one.name}";
    '';

  # The cluster of the image listens on its socket only, and refuses hosts.
  access = pkgs.writeText "pg_hba.conf" ''
    ${postgresql.authentication}
    local all all peer
  '';
  hosts = [
    "listen_addresses=*"
    "hba_file=${access}"
  ];
  value = one: if builtins.isBool one then lib.boolToString one else toString one;
  given = lib.mapAttrsToList (name: one: "${name}=${value one}") postgresql.settings;
  words = map (word: " -c ${word}") (lib.optionals postgresql.enableTCPIP hosts ++ given);

  state = "/var/lib/matrix-synapse";
  homeserver = {
    listeners = [
      {
        type = "http";
        port = 8008;
        bind_addresses = [ "127.0.0.1" ];
        resources = [ { names = [ "client" ]; } ];
      }
    ];
  }
  // synapse.settings
  // {
    database = {
      inherit (synapse.settings.database) name;
      args.database = "${state}/homeserver.db";
    };
    log_config = "/etc/matrix-synapse/log.json";
    media_store_path = "${state}/media";
    pid_file = "/run/matrix-synapse.pid";
    signing_key_path = "${state}/signing.key";
  };
  log = {
    version = 1;
    formatters.plain.format = "%(levelname)s %(name)s %(message)s";
    handlers.journal = {
      class = "logging.StreamHandler";
      formatter = "plain";
    };
    loggers."synapse.appservice".level = "INFO";
    root = {
      level = "WARNING";
      handlers = [ "journal" ];
    };
    disable_existing_loggers = false;
  };
in
{
  config = lib.mkMerge [
    (lib.mkIf postgresql.enable {
      users.users.postgres = {
        isSystemUser = true;
        group = "postgres";
        home = "/var/lib/postgresql";
      };
      users.groups.postgres = { };

      systemd.services.postgresql = {
        description = "PostgreSQL Server";
        wantedBy = [ "multi-user.target" ];
        after = [ "network.target" ];
        environment.PGDATA = "/var/lib/postgresql/main";
        serviceConfig = {
          Type = "notify";
          ExecStart = "${pkgs.postgresql}/bin/postgres${lib.concatStrings words}";
          User = "postgres";
          Group = "postgres";
          RuntimeDirectory = "postgresql";
          KillSignal = "SIGINT";
          KillMode = "mixed";
          Restart = "always";
        };
      };

      systemd.services.postgresql-setup = {
        description = "PostgreSQL's databases and users";
        wantedBy = [ "multi-user.target" ];
        requires = [ "postgresql.service" ];
        after = [ "postgresql.service" ];
        path = [ pkgs.postgresql ];
        script = ''
          psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 <<'SQL'
          ${lib.concatMapStrings database postgresql.ensureDatabases}
          ${lib.concatMapStrings role postgresql.ensureUsers}
          SQL
        '';
        serviceConfig = {
          Type = "oneshot";
          RemainAfterExit = true;
          User = "postgres";
          Group = "postgres";
        };
      };
    })

    (lib.mkIf synapse.enable {
      users.users.matrix-synapse = {
        isSystemUser = true;
        group = "matrix-synapse";
        home = state;
      };
      users.groups.matrix-synapse = { };

      environment.etc = {
        "matrix-synapse/homeserver.json".text = builtins.toJSON homeserver;
        "matrix-synapse/log.json".text = builtins.toJSON log;
      };

      systemd.services.matrix-synapse = {
        description = "Synapse Matrix homeserver";
        wantedBy = [ "multi-user.target" ];
        after = [ "network.target" ];
        path = [ pkgs.coreutils ];
        preStart = ''
          if [ ! -e ${state}/signing.key ]; then
            umask 077
            echo "ed25519 a_vm $(head -c 32 /dev/urandom | base64 | tr -d =)" >${state}/signing.key
          fi
        '';
        serviceConfig = {
          Type = "notify";
          ExecStart = "${lib.getExe pkgs.matrix-synapse} -c /etc/matrix-synapse/homeserver.json";
          User = "matrix-synapse";
          Group = "matrix-synapse";
          StateDirectory = "matrix-synapse";
          StateDirectoryMode = "0700";
          WorkingDirectory = state;
          Restart = "on-failure";
          UMask = "0027";
        };
      };
    })
  ];
}
