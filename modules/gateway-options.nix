# The options of the A2A server in front of this host's agents.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkEnableOption mkOption types;
  format = pkgs.formats.json { };
  optionTypes = import ./option-types.nix { inherit lib; };
  derived = import ./gateway-derived.nix { inherit lib config; };

  inherit (import ./settings-options.nix { inherit lib; }) setting count time;
  nameOf =
    name: what:
    mkOption {
      type = optionTypes.sourceName;
      default = name;
      readOnly = true;
      internal = true;
      description = "The ${what}'s name.";
    };

  agent =
    { name, ... }:
    {
      options = {
        name = nameOf name "agent";
        source = mkOption {
          type = optionTypes.sourceName;
          default = "a2a";
          example = "requests";
          description = ''
            The source of `services.cowboy.agents.<name>` that is the gateway's: it gets that
            source's password, writes its inbox and reads its outbox.
          '';
        };
        description = mkOption {
          type = types.str;
          default = "";
          example = "Looks things up.";
          description = "For the agent's card.";
        };
      };
    };

  client =
    { name, ... }:
    {
      options = {
        name = nameOf name "client";
        tokenFile = mkOption {
          type = types.nullOr optionTypes.secretPath;
          default = null;
          example = "/run/secrets/gateway-bridge";
          description = ''
            File that holds the bearer token of this client. The gateway gets it as a credential.
            Unset: made at the first boot, at `tokenPath`.
          '';
        };
        tokenPath = mkOption {
          type = types.str;
          readOnly = true;
          default = derived.tokenFile name config.services.a2a-gateway.clients.${name};
          defaultText = lib.literalMD "`/var/lib/a2a-gateway-tokens/<name>`, or `tokenFile`";
          description = "Where the token is; for the `tokenFile` of a bridge on this host.";
        };
      };
    };

  settings = types.submodule {
    freeformType = format.type;
    options = {
      base_url = setting (types.strMatching "https?://.+") "https://agents.example.org" ''
        What clients see before `/a2a/`, for the cards. Unset: the first address of `listen`.
      '';
      body_max_bytes = count 4194304 "Of one call.";
      open_tasks_max = count 1000 "Tasks of one client that have not ended.";
      tasks_max = count 5000000 "Tasks that are known, ended ones too.";
      task_timeout_s = time 3600 "A task that has not moved for so long has failed.";
      input_timeout_s = time 3600 "For the answer to an agent's question.";
      content_kept_s = time 3600 ''
        How long the content of an ended task is kept after its client got it.
      '';
      retention_s = count 604800 "How long an ended task and its message ids are known.";
    };
  };
in
{
  options.services.a2a-gateway = {
    enable = mkEnableOption "the A2A server in front of the agents of this host";

    package = mkOption {
      type = types.package;
      default =
        pkgs.corral-gateway or (pkgs.callPackage ../services/gateway/package.nix {
          corral = pkgs.callPackage ../services/cowboy/package.nix { };
        });
      defaultText = lib.literalExpression "pkgs.corral-gateway, from the overlay or built here";
      description = "The package with the program `corral-gateway`.";
    };

    agents = mkOption {
      type = types.attrsOf (types.submodule agent);
      default = { };
      example = {
        scout.description = "Looks things up.";
      };
      description = ''
        The agents of `services.cowboy.agents` that are served, each at `/a2a/<name>/`. Their source
        is made, if it is not declared there.
      '';
    };

    clients = mkOption {
      type = types.attrsOf (types.submodule client);
      default = { };
      example = {
        bridge = { };
      };
      description = "Who may ask: each client has a token of its own, and sees its own tasks.";
    };

    socket = mkOption {
      type = types.str;
      readOnly = true;
      default = derived.socket;
      description = ''
        Where it listens, for the group `a2a-gateway`. A bridge on this host is in that group; its
        agent's `url` is `unix:/run/a2a-gateway/socket:/a2a/<name>/`.
      '';
    };

    listen = mkOption {
      type = types.listOf (
        types.strMatching "([0-9]{1,3}(\\.[0-9]{1,3}){3}|\\[[0-9a-fA-F:]+]):[0-9]{1,5}"
      );
      default = [ ];
      example = [ "192.0.2.20:8080" ];
      description = ''
        Addresses of this host where bridges of other hosts reach the gateway, each with a port.
        What comes there is passed on to the socket by a proxy of systemd, as it is: without TLS, so
        that tokens and content can be read on the way. Name only addresses of a private network
        (WireGuard, for example), or put a server with TLS in front. Whoever gets there needs a
        client's token; the firewall is yours to open (`networking.firewall`). Cards name the first
        one, unless `settings.base_url` is set.
      '';
    };

    metrics.rules = optionTypes.ourFile ../monitoring/gateway.rules.yml ''
      Alert rules on the gateway's metrics, each with a runbook, for
      `services.prometheus.ruleFiles`. They are written where those of the agents are.
    '';

    settings = mkOption {
      type = settings;
      default = { };
      example = {
        open_tasks_max = 1000;
      };
      description = ''
        Settings of the gateway, by the names that its reference has; what is unset has the default
        that is named there. They are checked when the host is built. Not for secrets: they are in
        the Nix store.
      '';
    };
  };
}
