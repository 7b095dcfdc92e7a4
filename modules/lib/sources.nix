# The options of one source, and the file that the daemon and the runner read:
# <paths.config>/<agent>/sources.json. Limits that are not set are left out: their defaults
# are those of the program, in one place.
let
  names = import ./names.nix;
  types = import ./types.nix;
  util = import ./util.nix;
  inherit (builtins) listToAttrs mapAttrs removeAttrs;

  wholeNumbers =
    keys:
    listToAttrs (
      map (name: {
        inherit name;
        value = types.positive;
      }) keys
    );

  limits = wholeNumbers [
    "ack_attempts_max"
    "backlog_max"
    "block_ms"
    "channel_backlog_max"
    "content_max_bytes"
    "dispatch_attempts_max"
    "metadata_max_bytes"
    "outbox_attempts_max"
    "retention_h"
    "trim_interval_ms"
    "turns_concurrent_max"
  ];

  variable =
    path: name:
    if builtins.stringLength name > 128 || builtins.match "[A-Za-z_][A-Za-z0-9_]*" name == null then
      util.fail path "is not the name of an environment variable"
    else if util.hasPrefix "CORRAL_" name || name == "TRACEPARENT" then
      util.fail path "is set by the runner"
    else
      name;

  # The value is not shown in an error: an environment is where secrets end up by mistake.
  variableValue =
    path: value:
    if builtins.isString value then
      value
    else
      util.fail path "must be a string, not a ${builtins.typeOf value}";

  # No shell and no working directory to rely on: an absolute program, or a name in PATH.
  command =
    path: value:
    let
      words = types.nonEmptyListOf types.string path value;
      program = builtins.head words;
      relative = !util.hasPrefix "/" program && util.contains "/" program;
    in
    if relative then
      util.fail "${path}.0" "must be an absolute path, or a name to look up in PATH"
    else
      words;

  runners = {
    exec = types.struct {
      required = {
        kind = types.string;
        inherit command;
      };
      optional = {
        output = types.oneOf [
          "text"
          "json"
        ];
        environment = types.attrsOf {
          key = variable;
          value = variableValue;
        };
      }
      // wholeNumbers [
        "turn_timeout_s"
        "reply_max_bytes"
      ];
    };
    tamq = types.struct {
      required = {
        kind = types.string;
        repo = types.string;
        socket = types.matching {
          pattern = "/.*";
          max_bytes = 107;
          meaning = "an absolute path";
        };
      };
      optional = wholeNumbers [
        "turn_timeout_s"
        "reply_max_bytes"
      ];
    };
    echo = types.struct {
      required.kind = types.string;
      optional = wholeNumbers [ "reply_max_bytes" ];
    };
  };

  runner =
    path: value:
    let
      set = types.attrs path value;
      kindPath = util.child path "kind";
      kind = types.oneOf (builtins.attrNames runners) kindPath (
        set.kind or (util.fail kindPath "is missing")
      );
    in
    runners.${kind} path set;

  # Who holds the credential of the source's own identity: the producer of its inbox.
  client = types.struct {
    optional = {
      user = names.user;
      units = types.listOf names.unit;
    };
  };

  defaults = {
    ack = "dispatch";
    on_interrupt = "notify";
    read_count = 10;
    reclaim_idle_ms = 600000;
    client = { };
  };

  clientDefaults = {
    user = "root";
    units = [ ];
  };
in
{
  # The checked options of one source, with defaults.
  options =
    path: value:
    let
      set = types.struct {
        required = {
          inherit runner;
        };
        optional =
          limits
          // wholeNumbers [
            "read_count"
            "reclaim_idle_ms"
          ]
          // {
            inherit client;
            ack = types.oneOf [
              "dispatch"
              "reply"
            ];
            on_interrupt = types.oneOf [
              "notify"
              "resume"
              "hold"
            ];
          };
      } path value;
      filled = defaults // set;
    in
    filled // { client = clientDefaults // filled.client; };

  agentLimits = types.struct { optional = wholeNumbers [ "turns_concurrent_max" ]; };

  # The contents of sources.json of one checked agent.
  file =
    agent: options:
    let
      entry =
        source: set:
        let
          keys = names.keys agent source;
        in
        removeAttrs set [ "client" ]
        // {
          stream = keys.inbox;
          outbox = keys.outbox;
          group = names.group;
          consumer = names.consumer source;
        };
    in
    {
      version = 1;
      inherit agent;
      sources = mapAttrs entry options.sources;
    }
    // (if options.limits == { } then { } else { inherit (options) limits; });
}
