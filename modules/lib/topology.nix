# The options of a whole topology: shape, types, defaults. What concerns several options
# at once is in checks.nix.
let
  names = import ./names.nix;
  redis = import ./redis.nix;
  sources = import ./sources.nix;
  types = import ./types.nix;
  util = import ./util.nix;

  directory =
    path: value:
    let
      text = types.matching {
        pattern = "/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*";
        max_bytes = 255;
        meaning = "a path of letters, digits, '.', '_', '-' and single '/'";
      } path value;
      dotted = builtins.match "(.*/)?[.][.]?(/.*)?" text != null;
    in
    if dotted then
      util.fail path "must not have '.' or '..' as a part, as ${util.show text} has"
    else
      text;

  named =
    value:
    types.attrsOf {
      key = names.name;
      inherit value;
    };

  nonEmpty =
    type: path: value:
    let
      set = type path value;
    in
    if set == { } then util.fail path "must not be empty" else set;

  agent =
    path: value:
    types.struct {
      required.sources = nonEmpty (named sources.options);
      optional = {
        limits = sources.agentLimits;
        user = names.user;
      };
    } path value;

  withName =
    name: set:
    {
      user = name;
      limits = { };
    }
    // set;

  paths =
    path: value:
    {
      config = "/etc/cowboy";
      state = "/var/lib/cowboy";
      runtime = "/run/cowboy";
    }
    // types.struct {
      optional = {
        config = directory;
        state = directory;
        runtime = directory;
      };
    } path value;

  # One person's or one exporter's identity: who is given its credential.
  holder =
    defaults: path: value:
    defaults
    // types.struct {
      optional = {
        user = names.user;
        units = types.listOf names.unit;
      };
    } path value;

  options = {
    agents = path: value: builtins.mapAttrs withName (named agent path value);
    inherit paths;
    redis = redis.options directory;
    operator = holder {
      user = "root";
      units = [ ];
    };
    metrics = holder {
      user = "corral-metrics";
      units = [ "corral-metrics.service" ];
    };
  };
in
# `prefix` is where the topology stands among the options of its user: "" or "services.cowboy.".
prefix: value:
let
  anything = _: set: set;
  given = types.struct { optional = builtins.mapAttrs (_: _: anything) options; } "topology" value;
in
builtins.mapAttrs (name: type: type "${prefix}${name}" (given.${name} or { })) options
