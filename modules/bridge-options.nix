# The options of the bridge between Matrix rooms and A2A agents.
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
  derived = import ./bridge-derived.nix { inherit lib config; };
  synapse = config.services.matrix-synapse;

  inherit (import ./settings-options.nix { inherit lib; }) setting count time;
  list =
    example: description:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      inherit example description;
    };
  flag =
    description:
    mkOption {
      type = types.bool;
      default = false;
      example = true;
      inherit description;
    };
  file =
    example: description:
    mkOption {
      type = types.nullOr optionTypes.secretPath;
      default = null;
      inherit example description;
    };

  agent =
    { name, ... }:
    {
      options = agentOptions // {
        name = mkOption {
          type = optionTypes.sourceName;
          default = name;
          readOnly = true;
          internal = true;
          description = "The agent's name.";
        };
      };
    };

  agentOptions = {
    url = mkOption {
      type = types.strMatching "(https?://|unix:/).+";
      example = "https://agents.example.org/scout/";
      description = ''
        Of the agent's card when it ends in `.json`, else the address below which the card is looked
        for: `http://…`, `https://…` or `unix:/socket:/path`.
      '';
    };
    localpart = setting types.str "scout" ''
      Of the user that stands for the agent in rooms. Unset: the agent's name.
    '';
    display_name = setting types.str "Scout" "Of that user.";
    protocol = setting (types.enum [
      "1.0"
      "0.3"
    ]) "1.0" "Of A2A. Unset: what the agent's card says.";
    endpoint = setting types.str "https://agents.example.org/scout/a2a" ''
      Replaces the address that the card names.
    '';
    tokenFile = file "/run/secrets/scout-token" ''
      File that holds the agent's bearer token. The bridge gets it as a systemd credential.
    '';
    allowed_senders = list [ "@*:example.org" ] ''
      Who may ask this agent; `*` stands for anything. Empty: everybody.
    '';
    reconcile = flag "After a lost call, look for the task in the agent's list.";
    idempotent = flag ''
      Send a lost message again, if the agent's card declares that it knows it.
    '';
    request_timeout_s = time 30 "Of one HTTP call to this agent. Unset: that of the settings.";
    task_timeout_s = time 3600 "Of one task of this agent. Unset: that of the settings.";
  };

  settings = types.submodule {
    freeformType = format.type;
    options = {
      appservice_id = setting types.str "corral-bridge" "As in the registration.";
      sender_localpart = setting types.str "a2a-bridge" "Of the bridge's own user.";
      listen_host = setting types.str "192.0.2.7" ''
        Where the homeserver calls the bridge. Unset: only on this host.
      '';
      listen_port = setting types.port 29331 "Port there.";
      url = setting types.str "http://bridge.internal:29331" ''
        How the homeserver reaches the bridge. Unset: by host and port.
      '';
      database_pooled = flag "Whether the database is reached through a pooler of transactions.";
      takes_transactions = setting types.bool false ''
        Whether this process may be the one that takes transactions. False: it only works on jobs,
        for a second process that the homeserver does not reach. Unset: it may.
      '';
      txn_conflict = mkOption {
        type = types.enum [
          "reject"
          "epoch"
        ];
        default = if derived.synapseOnSqlite then "epoch" else "reject";
        defaultText = lib.literalMD ''
          `"epoch"` when this host's Synapse has SQLite, else `"reject"`
        '';
        example = "epoch";
        description = ''
          What is done when the homeserver uses a transaction's number for other events: refuse, or
          take the events by their own ids. Synapse on SQLite begins its numbers again at each
          start: set `"epoch"` when such a one is on another host.
        '';
      };
      concurrency = count 32 "Jobs in work.";
      room_queue_capacity = count 64 "Open jobs of a room.";
      global_queue_capacity = count 512 "Open jobs.";
      control_capacity_per_job = count 32 "Questions, answers, cancellations and posts of one job.";
      max_task_progress_posts = setting types.ints.unsigned 5 "Posts about progress of one job.";
      claim_interval_s = time 1 "How often is looked for work; a new job wakes the bridge at once.";
      lease_s = time 30 "How long a job is a worker's without being renewed.";
      retry_initial_s = time 1 "The first pause after a failure.";
      retry_max_s = time 60 "The longest pause.";
      attempts_max = count 8 "Failures in a row.";
      request_timeout_s = time 30 "Of one HTTP call.";
      task_timeout_s = time 3600 ''
        Of a task, from the first call on; paused while input is awaited.
      '';
      input_wait_timeout_s = time 3600 "For the answer to an agent's question.";
      reconcile_timeout_s = time 120 "For finding a lost call, or sending it again.";
      placeholder_after_s = time 5 "A task that takes longer gets a placeholder.";
      shutdown_timeout_s = time 20 "For what is in work when the bridge is stopped.";
      tombstone_retention_h = time 72 ''
        How long delivered and denied jobs are kept, without content.
      '';
      transaction_max_bytes = count 33554432 "Of one delivery of the homeserver.";
      catch_up_interval_s = time 60 ''
        How often is looked for what the homeserver forgot to deliver when it was killed. 0: never.
      '';
      catch_up_age_max_s = time 3600 "What is older is not looked for.";
      pin_placeholders = flag "Whether what is in work is pinned.";
      cancel_power_level = setting types.int 50 ''
        Whoever has it in a room may cancel what others asked for. Unset: nobody.
      '';
      sender_rate_per_min = time 12 "Requests of one person; 0 means no limit.";
      sender_burst = count 6 "At once.";
      room_rate_per_min = time 60 "Requests in one room; 0 means no limit.";
      room_burst = count 20 "At once.";
      allowed_senders = list [ "@*:example.org" ] "Who may ask. Empty: everybody.";
      allowed_rooms = list [ "!room:example.org" ] "Where. Empty: in every room.";
      allowed_inviters = list [ "@*:example.org" ] ''
        Whose invitations are accepted. Empty: everybody's.
      '';
    };
  };
in
{
  options.services.a2a-bridge = {
    enable = mkEnableOption "the bridge from mentions in Matrix rooms to tasks of A2A agents";

    package = mkOption {
      type = types.package;
      default =
        pkgs.a2a-bridge or (pkgs.callPackage ../services/a2a-bridge/package.nix {
          corral = pkgs.callPackage ../services/cowboy/package.nix { };
        });
      defaultText = lib.literalExpression "pkgs.a2a-bridge, from the overlay or built here";
      description = "The package with the program `a2a-bridge`.";
    };

    homeserver = {
      url = mkOption {
        type = types.nullOr (types.strMatching "https?://.+");
        default = if synapse.enable then "http://127.0.0.1:8008" else null;
        defaultText = lib.literalMD "`\"http://127.0.0.1:8008\"` when Synapse is on this host";
        example = "https://matrix.example.org";
        description = "The base address of the homeserver's client API.";
      };
      domain = mkOption {
        type = types.nullOr types.nonEmptyStr;
        default = if synapse.enable then synapse.settings.server_name else null;
        defaultText = lib.literalMD "that of Synapse when it is on this host";
        example = "example.org";
        description = "What follows the colon in user ids of the homeserver.";
      };
    };

    agents = mkOption {
      type = types.attrsOf (types.submodule agent);
      default = { };
      example = lib.literalExpression ''
        {
          scout = {
            url = "https://agents.example.org/scout/";
            tokenFile = "/run/secrets/scout-token";
          };
        }
      '';
      description = ''
        The agents that can be mentioned. The ledger knows an agent by its name: with another name
        it is another agent.
      '';
    };

    database = {
      createLocally = mkOption {
        type = types.bool;
        default = true;
        example = false;
        description = ''
          Whether the ledger is in a PostgreSQL of this host, in a database `a2a-bridge` of a user
          of that name, both made by `services.postgresql`. The socket shows who connects; there is
          no password.
        '';
      };
      urlFile = file "/run/secrets/bridge-database" ''
        File with the address of a database elsewhere,
        `postgresql://user:password@host/database?sslmode=verify-full`; the bridge gets it as a
        systemd credential. Needs `createLocally = false`.
      '';
    };

    asTokenFile = file "/run/secrets/bridge-as-token" ''
      File with the token by which the homeserver knows the bridge. Unset: made at the first boot.
    '';
    hsTokenFile = file "/run/secrets/bridge-hs-token" ''
      File with the token by which the bridge knows the homeserver. Unset: made at the first boot.
    '';

    registrationFile = mkOption {
      type = types.path;
      readOnly = true;
      default = derived.registrationFile;
      description = ''
        The registration for the homeserver, made when the host starts. Synapse on this host gets
        it by itself; for one elsewhere, copy it. It holds both tokens.
      '';
    };

    metrics.rules = optionTypes.ourFile ../monitoring/bridge.rules.yml ''
      Alert rules on the bridge's metrics, each with a runbook, for
      `services.prometheus.ruleFiles`. The bridge shows them at `/metrics` of its port.
    '';

    settings = mkOption {
      type = settings;
      default = { };
      example = {
        concurrency = 32;
      };
      description = ''
        Settings of the bridge, by the names that the reference of its settings has; what is unset
        has the default that is named there. They are checked when the host is built. Not for
        secrets: they are in the Nix store.
      '';
    };
  };
}
