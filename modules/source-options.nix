# Options of one source of an agent, and of a runner. What is null is left out of sources.json:
# its default is that of the program, in one place.
{ lib }:
let
  inherit (lib) mkOption types;
  optionTypes = import ./option-types.nix { inherit lib; };

  limit =
    description: example:
    mkOption {
      type = types.nullOr types.ints.positive;
      default = null;
      inherit example description;
    };

  runner = types.submodule {
    options = {
      kind = mkOption {
        type = types.enum [
          "exec"
          "tamq"
          "echo"
        ];
        example = "exec";
        description = ''
          What answers: `exec` runs a program for each entry, `tamq` wakes a live session of the
          agent's user, who has a TAMQ then (`services.tamq.users`), `echo` gives the entry back.
        '';
      };
      repo = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "shop";
        description = "For `tamq`: the repository that the session serves, as gita names it.";
      };
      command = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [
          "my-agent"
          "--answer"
        ];
        description = ''
          Program and arguments of `exec`: no shell takes part. The program is an absolute path, or
          a name that is found in the agent's `path`. The prompt is its standard input.
        '';
      };
      output = mkOption {
        type = types.nullOr (
          types.enum [
            "text"
            "json"
          ]
        );
        default = null;
        example = "json";
        description = "Whether the output of `exec` is the reply, or a JSON envelope of it.";
      };
      environment = mkOption {
        type = types.attrsOf types.str;
        default = { };
        example = {
          LANG = "C.UTF-8";
        };
        description = ''
          Added to the environment of a run of `exec`. Not for secrets: it is in the Nix store.
          Use the agent's `environmentFiles` or `credentials` for those.
        '';
      };
      turn_timeout_s = limit ''
        A run of `exec` that takes longer is killed; a session of `tamq` has so long to answer.
      '' 120;
      reply_max_bytes = limit "Longest reply, in bytes." 65536;
    };
  };
in
{
  inherit runner;

  limits.options.turns_concurrent_max = limit "Runs at one time, over all sources." 16;

  source =
    { name, ... }:
    {
      options = {
        name = mkOption {
          type = optionTypes.sourceName;
          default = name;
          readOnly = true;
          internal = true;
          description = "The source's name.";
        };
        runner = mkOption {
          type = types.nullOr runner;
          default = null;
          example = {
            kind = "echo";
          };
          description = "What answers the entries of this source; unset: the agent's `runner`.";
        };
        ack = mkOption {
          type = types.enum [
            "dispatch"
            "reply"
          ];
          default = "dispatch";
          example = "reply";
          description = "Acknowledge an entry when it is handed to the runner, or with its answer.";
        };
        on_interrupt = mkOption {
          type = types.enum [
            "notify"
            "resume"
            "hold"
          ];
          default = "notify";
          example = "hold";
          description = ''
            For a turn whose run is over with unknown outcome: tell the sender (`notify`), run it
            again as a resumed turn (`resume`), or hold it for the operator (`hold`).
          '';
        };
        read_count = mkOption {
          type = types.ints.between 1 1000;
          default = 10;
          example = 100;
          description = "Most entries taken by one read.";
        };
        reclaim_idle_ms = mkOption {
          type = types.ints.between 100 86400000;
          default = 600000;
          example = 60000;
          description = "An entry that is pending for longer is claimed again.";
        };
        ack_attempts_max = limit "Failed acknowledgements before one is forgotten." 5;
        backlog_max = limit "Open turns; at this many nothing is read." 1000;
        block_ms = limit "How long an idle read waits for an entry." 2000;
        channel_backlog_max = limit "Open turns of one channel among them." 100;
        content_max_bytes = limit "Longest content of an entry." 1048576;
        dispatch_attempts_max = limit "Starts of one turn before it is given up." 3;
        metadata_max_bytes = limit "Longest value of any other field of an entry." 1024;
        outbox_attempts_max = limit "Refusals by the outbox before a reply is dead." 10;
        retention_h = limit "How long the row of a finished turn is kept." 24;
        trim_interval_ms = limit "Between trims of the inbox." 1000;
        turns_concurrent_max = limit "Runs of this source at one time; one per channel." 4;
        client.units = mkOption {
          type = types.listOf optionTypes.serviceUnit;
          default = [ ];
          example = [ "a2a-gateway.service" ];
          description = ''
            Services of this host that write this inbox and read its outbox. Each joins the
            namespace and gets the password of the source's identity as the systemd credential
            `redis-source.<agent>.<source>`. Declare the services themselves elsewhere.
          '';
        };
      };
    };
}
