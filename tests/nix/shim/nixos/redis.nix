# `services.redis.servers`: the unit, its user and its configuration file, as nixpkgs has them.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.redis;
  option = type: default: mkOption { inherit type default; };
  full = name: "redis" + lib.optionalString (name != "") "-${name}";
  servers = lib.filterAttrs (_: server: server.enable) cfg.servers;

  server =
    { config, name, ... }:
    {
      options = {
        enable = lib.mkEnableOption "Redis server";
        user = option types.str (full name);
        port = option types.port (if name == "" then 6379 else 0);
        openFirewall = option types.bool false;
        extraParams = option (types.listOf types.str) [ ];
        bind = option (types.nullOr types.str) "127.0.0.1";
        unixSocket = option (types.nullOr types.path) "/run/${full name}/redis.sock";
        unixSocketPerm = option types.int 660;
        logLevel = option types.str "notice";
        logfile = option types.str "/dev/null";
        syslog = option types.bool true;
        databases = option types.int 16;
        maxclients = option types.int 10000;
        save = option (types.listOf (types.listOf types.int)) [
          [
            900
            1
          ]
          [
            300
            10
          ]
          [
            60
            10000
          ]
        ];
        slaveOf = option (types.nullOr (
          types.submodule {
            options = {
              ip = mkOption { type = types.str; };
              port = option types.port 6379;
            };
          }
        )) null;
        masterAuth = option (types.nullOr types.str) null;
        requirePass = option (types.nullOr types.str) null;
        requirePassFile = option (types.nullOr types.path) null;
        appendOnly = option types.bool false;
        appendFsync = option types.str "everysec";
        slowLogLogSlowerThan = option types.int 10000;
        slowLogMaxLen = option types.int 128;
        settings = option (types.attrsOf (
          types.oneOf [
            types.bool
            types.int
            types.str
            (types.listOf types.str)
          ]
        )) { };
      };
      config.settings = lib.mkMerge [
        {
          inherit (config)
            port
            logfile
            databases
            maxclients
            appendOnly
            ;
          daemonize = false;
          supervised = "systemd";
          loglevel = config.logLevel;
          syslog-enabled = config.syslog;
          save = if config.save == [ ] then "\"\"" else map (pair: toString pair) config.save;
          dbfilename = "dump.rdb";
          dir = "/var/lib/${full name}";
          appendfsync = config.appendFsync;
          slowlog-log-slower-than = config.slowLogLogSlowerThan;
          slowlog-max-len = config.slowLogMaxLen;
        }
        (lib.mkIf (config.bind != null) { inherit (config) bind; })
        (lib.mkIf (config.unixSocket != null) {
          unixsocket = config.unixSocket;
          unixsocketperm = toString config.unixSocketPerm;
        })
        (lib.mkIf (config.slaveOf != null) {
          slaveof = "${config.slaveOf.ip} ${toString config.slaveOf.port}";
        })
        (lib.mkIf (config.masterAuth != null) { masterauth = config.masterAuth; })
        (lib.mkIf (config.requirePass != null) { requirepass = config.requirePass; })
      ];
    };

  file =
    settings:
    pkgs.writeText "redis.conf" (
      lib.generators.toKeyValue {
        listsAsDuplicateKeys = true;
        mkKeyValue = lib.generators.mkKeyValueDefault {
          mkValueString =
            value:
            if value == true then
              "yes"
            else if value == false then
              "no"
            else
              lib.generators.mkValueStringDefault { } value;
        } " ";
      } settings
    );

  prepare =
    name: server:
    let
      state = "/var/lib/${full name}/redis.conf";
      run = "/run/${full name}/nixos.conf";
    in
    pkgs.writeShellScript "${full name}-prep-conf" ''
      touch "${state}" "${run}"
      chown '${server.user}' "${state}" "${run}"
      chmod 0600 "${state}" "${run}"
      if [ ! -s ${state} ]; then
        echo 'include "${run}"' > "${state}"
      fi
      echo 'include "${file server.settings}"' > "${run}"
      ${lib.optionalString (server.requirePassFile != null) ''
        {
          echo -n "requirepass "
          cat ${lib.escapeShellArg server.requirePassFile}
        } >> "${run}"
      ''}
    '';

  unit = name: server: {
    description = "Redis Server - ${full name}";
    wantedBy = [ "multi-user.target" ];
    after = [ "network.target" ];
    serviceConfig = {
      Type = "notify";
      ExecStart =
        "${cfg.package}/bin/${cfg.package.serverBin or "redis-server"}"
        + " /var/lib/${full name}/redis.conf ${lib.escapeShellArgs server.extraParams}";
      ExecStartPre = "+${prepare name server}";
      User = server.user;
      Group = server.user;
      RuntimeDirectory = full name;
      RuntimeDirectoryMode = "0750";
      StateDirectory = full name;
      StateDirectoryMode = "0700";
      UMask = "0077";
      CapabilityBoundingSet = "";
      NoNewPrivileges = true;
      LimitNOFILE = lib.mkDefault (toString (server.maxclients + 32));
      MemoryDenyWriteExecute = cfg.package.pname != "keydb";
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_UNIX"
      ];
      ProtectSystem = "strict";
      SystemCallArchitectures = "native";
      SystemCallFilter =
        "~@cpu-emulation @debug @keyring @memlock @mount"
        + " @obsolete @privileged @resources @setuid";
    }
    // lib.genAttrs [
      "LockPersonality"
      "PrivateDevices"
      "PrivateMounts"
      "PrivateTmp"
      "PrivateUsers"
      "ProtectClock"
      "ProtectControlGroups"
      "ProtectHome"
      "ProtectHostname"
      "ProtectKernelLogs"
      "ProtectKernelModules"
      "ProtectKernelTunables"
      "RestrictNamespaces"
      "RestrictRealtime"
      "RestrictSUIDSGID"
    ] (_: true);
  };
  each =
    make: lib.mapAttrs' (name: server: lib.nameValuePair (full name) (make name server)) servers;
in
{
  options.services.redis = {
    package = lib.mkPackageOption pkgs "redis" { };
    vmOverCommit = lib.mkEnableOption "memory overcommitment" // {
      default = true;
    };
    servers = option (types.attrsOf (types.submodule server)) { };
  };
  config = lib.mkIf (servers != { }) {
    boot.kernel.sysctl = lib.mkIf cfg.vmOverCommit { "vm.overcommit_memory" = "1"; };
    networking.firewall.allowedTCPPorts = lib.concatMap (
      server: lib.optional server.openFirewall server.port
    ) (builtins.attrValues servers);
    environment.systemPackages = [ cfg.package ];
    users.users = each (
      name: server: {
        description = "System user for the redis-server instance ${name}";
        isSystemUser = true;
        group = full name;
      }
    );
    users.groups = each (_: _: { });
    systemd.services = each unit;
  };
}
