# Options of one agent.
{ lib, format }:
let
  inherit (lib) mkOption types;
  optionTypes = import ./option-types.nix { inherit lib; };
  sourceOptions = import ./source-options.nix { inherit lib; };

  settings = types.submodule {
    freeformType = format.type;
    options = {
      redis_protocol = mkOption {
        type = types.enum [
          2
          3
        ];
        default = 3;
        example = 2;
        description = "Version of the Redis protocol, RESP2 or RESP3.";
      };
    };
  };
in
{ name, config, ... }:
{
  options = {
    enable = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = ''
        Whether this agent exists. A disabled agent has no identity, no units and no users; its
        ledger and its streams stay where they are.
      '';
    };
    name = mkOption {
      type = optionTypes.agentName;
      default = name;
      readOnly = true;
      internal = true;
      description = "The agent's name.";
    };
    user = mkOption {
      type = optionTypes.userName;
      default = name;
      defaultText = lib.literalMD "the agent's name";
      example = "alice";
      description = ''
        The user that the agent's runner and its runs have. The daemon never has it, so that a run
        reads neither the ledger nor the daemon's credential.
      '';
    };
    createUser = mkOption {
      type = types.bool;
      default = config.user == name;
      defaultText = lib.literalMD "true when `user` is the agent's name";
      example = false;
      description = "Whether to make `user` as a system user; false when it is declared elsewhere.";
    };
    sources = mkOption {
      type = types.attrsOf (types.submodule sourceOptions.source);
      default = { };
      example = lib.literalExpression ''{ a2a = { ack = "reply"; }; }'';
      description = "Where entries for the agent come from, each with an inbox and an outbox.";
    };
    runner = mkOption {
      type = types.nullOr sourceOptions.runner;
      default = null;
      example = {
        kind = "exec";
        command = [ "my-agent" ];
      };
      description = "What answers the entries of every source that sets no `runner` of its own.";
    };
    limits = mkOption {
      type = types.submodule sourceOptions.limits;
      default = { };
      example = {
        turns_concurrent_max = 4;
      };
      description = "Limits over all sources of the agent together.";
    };
    settings = mkOption {
      type = settings;
      default = { };
      example = {
        redis_protocol = 2;
      };
      description = ''
        Settings of the agent's daemon and runner beside those that the modules make, as the
        reference of settings names them. Not for secrets: they are in the Nix store.
      '';
    };
    environmentFiles = mkOption {
      type = types.listOf optionTypes.secretPath;
      default = [ ];
      example = [ "/run/secrets/scout.env" ];
      description = ''
        Files with environment variables for the agent's runs, as systemd's EnvironmentFile= reads
        them. Root reads them, so the agent's user need not be able to. Only the runner gets them.
      '';
    };
    credentials = mkOption {
      type = types.attrsOf optionTypes.secretPath;
      default = { };
      example = {
        api-key = "/run/secrets/scout-api-key";
      };
      description = ''
        systemd credentials for the agent's runs, by name: a run finds each as a file of that name
        in the directory that its `CREDENTIALS_DIRECTORY` names. Only the runner gets them.
      '';
    };
    path = mkOption {
      type = types.listOf (types.either types.path types.package);
      default = [ ];
      example = lib.literalExpression "[ pkgs.git pkgs.my-agent ]";
      description = "Packages whose programs are in the `PATH` of the agent's runs.";
    };
  };
}
