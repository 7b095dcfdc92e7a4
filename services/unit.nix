# What every daemon's unit has in common: it says when it is ready and that it lives, and no
# number of kills makes systemd give it up.
{
  wantedBy = [ "multi-user.target" ];
  startLimitIntervalSec = 0;
  serviceConfig = {
    Type = "notify";
    NotifyAccess = "main";
    WatchdogSec = "60s";
    Restart = "always";
    RestartSec = "1s";
    TimeoutStopSec = "30s";
  };
}
