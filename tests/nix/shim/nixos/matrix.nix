# Synapse and PostgreSQL as far as the bridge's module sets or reads them; their units are not here.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  option = type: default: mkOption { inherit type default; };
in
{
  options.services.matrix-synapse = {
    enable = lib.mkEnableOption "matrix.org synapse, the reference homeserver";
    settings = option (types.submodule {
      freeformType = (pkgs.formats.yaml { }).type;
      options = {
        server_name = mkOption {
          type = types.str;
          default = config.networking.hostName;
          defaultText = lib.literalExpression "config.networking.hostName";
        };
        database.name = mkOption {
          type = types.enum [
            "sqlite3"
            "psycopg2"
          ];
          default = "psycopg2";
          defaultText = lib.literalMD "by `system.stateVersion`";
        };
        app_service_config_files = option (types.listOf types.path) [ ];
      };
    }) { };
  };

  options.services.postgresql = {
    enable = lib.mkEnableOption "PostgreSQL Server";
    enableTCPIP = option types.bool false;
    authentication = option types.lines "";
    settings = option (types.submodule {
      freeformType = types.attrsOf (
        types.oneOf [
          types.bool
          types.float
          types.int
          types.str
        ]
      );
    }) { };
    ensureDatabases = option (types.listOf types.str) [ ];
    ensureUsers = option (types.listOf (
      types.submodule {
        options = {
          name = mkOption { type = types.str; };
          ensureDBOwnership = option types.bool false;
        };
      }
    )) [ ];
  };
}
