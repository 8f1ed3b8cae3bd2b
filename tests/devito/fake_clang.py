"""A compiler that calls itself clang and makes kernels compute in the memory of the fake device."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = ("-O", "-fPIC", "-ffast-math", "-shared", "-I", "-L", "-l", "-o", "-c", "-std")


def main(arguments):
    if "--version" in arguments:
        print("clang version 19.1.7")
        return 0
    if "-M" in arguments:  # which headers the source depends on
        return subprocess.call(["gcc", "-M", *(argument for argument in arguments if argument.endswith(".c"))])
    command, targets = ["gcc"], []
    following = iter(arguments)
    for argument in following:
        if argument.endswith(".c"):
            text = Path(argument).read_text()
            transfers = int("target enter data" in text)
            text = re.sub(r"\) (\w+_vec->data);", rf") fake_device(\1, {transfers});", text)
            changed = Path(argument).with_suffix(".fake.c")
            changed.write_text("void *fake_device(void *, int);\n" + text)
            targets.append(str(changed))
        elif argument == "-o":
            command += [argument, next(following)]
        elif argument.startswith(KEPT):
            command.append(argument)
    library = os.environ["FAKE_OPENMP"]
    return subprocess.call([*command, "-w", *targets, library, f"-Wl,-rpath,{Path(library).parent}", "-lm"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
