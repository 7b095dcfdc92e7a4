# What no unit of ours may do, whatever it is for: each profile begins with this and adds to it.
# docs/explanation/hardening.md says why.
{
  LockPersonality = true;
  NoNewPrivileges = true;
  PrivateDevices = true;
  ProtectClock = true;
  ProtectHostname = true;
  ProtectKernelLogs = true;
  ProtectKernelModules = true;
  ProtectKernelTunables = true;
  RestrictRealtime = true;
  RestrictSUIDSGID = true;
  SystemCallArchitectures = "native";
  UMask = "0077";
}
