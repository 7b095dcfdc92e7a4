# Options of the server. What a guarantee rests on is fixed here and cannot be set otherwise.
let
  types = import ./types.nix;
  util = import ./util.nix;

  word =
    pattern: meaning:
    types.matching {
      inherit pattern meaning;
      max_bytes = 32;
    };
  size = word "[1-9][0-9]*(k|kb|m|mb|g|gb)?" "a size above 0, such as \"256mb\"";
  count = word "[1-9][0-9]*" "a number above 0 in a string, such as \"1000\"";

  fixed = {
    appendonly = {
      value = "yes";
      reason = "without it a killed server forgets entries that were answered";
    };
    appendfsync = {
      value = "always";
      reason = "an XADD that was answered must survive a power failure";
    };
    "no-appendfsync-on-rewrite" = {
      value = "no";
      reason = "an XADD that was answered must survive a power failure";
    };
    maxmemory-policy = {
      value = "noeviction";
      reason = "any other policy drops keys that hold unanswered entries";
    };
  };

  exactly =
    rule: path: value:
    if builtins.isString value && value == rule.value then
      value
    else
      util.fail path "must be ${util.show rule.value}, not ${util.show value}: ${rule.reason}";

  settings = types.struct {
    optional = builtins.mapAttrs (_: exactly) fixed // {
      acllog-max-len = count;
      auto-aof-rewrite-min-size = size;
      auto-aof-rewrite-percentage = count;
      maxclients = count;
      maxmemory = size;
    };
  };

  defaults = builtins.mapAttrs (_: rule: rule.value) fixed // {
    maxmemory = "256mb";
  };
in
{
  options =
    socket: path: value:
    let
      set = types.struct { optional = { inherit settings socket; }; } path value;
    in
    {
      socket = set.socket or "/run/redis-cowboy/redis.sock";
      settings = defaults // (set.settings or { });
    };
}
