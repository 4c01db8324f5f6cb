# SPDX-License-Identifier: BSD-2-Clause
"""Test results in the Test Anything Protocol, as tap.h does for C."""
import subprocess
import sys

_cases = 0
_failures = 0


def check(passed, name, diagnosis=""):
    """Reports one case, after a diagnosis if it failed; gives back whether it passed."""
    global _cases, _failures
    _cases += 1
    if not passed:
        _failures += 1
        for line in diagnosis.splitlines():
            print(f"# {line}")
    print(f"{'' if passed else 'not '}ok {_cases} - {name}", flush=True)
    return passed


def check_equal(got, expected, name):
    return check(got == expected, name, f"got:\n{got}\nexpected:\n{expected}")


def check_runs(command, name, **options):
    """Reports whether a command succeeds; gives back what it printed, or None."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    end_of_output = "\n".join(done.stdout.splitlines()[-15:])
    return done.stdout if check(done.returncode == 0, name, f"{command}\n{end_of_output}") else None


def skip(name, why):
    """Reports one case that this machine cannot run."""
    global _cases
    _cases += 1
    print(f"ok {_cases} - {name} # SKIP {why}", flush=True)


def done():
    """Closes the report and ends the program."""
    print(f"1..{_cases}")
    sys.exit(_failures != 0)
