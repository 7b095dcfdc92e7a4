# One program of the distribution as a package of its own. `setUp` is run before it.
{
  lib,
  corral,
  runtimeShell,
  writeTextFile,
  name,
  description,
  setUp ? "",
}:
writeTextFile {
  name = "${name}-${corral.version}";
  executable = true;
  destination = "/bin/${name}";
  text = ''
    #!${runtimeShell}
    ${setUp}exec ${corral}/bin/${name} "$@"
  '';
  meta = {
    inherit description;
    license = lib.licenses.asl20;
    mainProgram = name;
    platforms = lib.platforms.linux;
    # The distribution has the program, too.
    priority = 4;
  };
}
