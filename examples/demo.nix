# The topology of the local deployment, and the smallest complete example: three agents,
# five sources, paths below the directory where it is started.
{
  paths = {
    config = "config";
    state = "state";
    runtime = "run";
  };

  redis = {
    socket = "run/redis/redis.sock";
    settings.maxmemory = "256mb";
  };

  agents.scout.sources = {
    # Acknowledged when the work is handed over; an interrupted turn is reported, not repeated.
    a2a = {
      ack = "dispatch";
      on_interrupt = "notify";
      runner = {
        kind = "exec";
        command = [ "corral-demo-agent" ];
        turn_timeout_s = 120;
      };
    };

    # Acknowledged together with the answer; an interrupted turn is started again.
    chat = {
      ack = "reply";
      on_interrupt = "resume";
      runner = {
        kind = "exec";
        command = [ "corral-demo-agent" ];
        output = "text";
        turn_timeout_s = 120;
      };
    };

    echo.runner.kind = "echo";
  };

  # Answered by a live session, which TAMQ wakes. When the session ends before it has answered,
  # the next one is woken with the turn. The demo has a TAMQ of its own, with another socket.
  agents.pilot.sources.a2a = {
    on_interrupt = "resume";
    runner = {
      kind = "tamq";
      repo = "helm";
      socket = "/run/tamq/pilot/tamq.sock";
      turn_timeout_s = 120;
    };
  };

  # Here so that what separates two agents can be tried.
  agents.smith.sources.echo.runner.kind = "echo";
}
