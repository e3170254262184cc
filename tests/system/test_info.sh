#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests the command ceoverlap-info on every machine of tests/fixtures/machines: properties of
# each machine, JSON, files that are written and read again, settings and their origins, and
# files that do not describe a machine.
set -u

info=./ceoverlap-info
srcdir=${srcdir:-.}
machines=$srcdir/tests/fixtures/machines
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/info.out
errors=$folder/info.err
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done
export XDG_CACHE_HOME=$folder/cache

fail() {
	echo "FAIL: $1"
	failed=1
}

# expect STATUS WHAT ARGUMENT...
expect() {
	local wanted=$1 what=$2 status
	shift 2

	timeout 30 "$info" "$@" > "$out" 2> "$errors"
	status=$?
	[ "$status" = "$wanted" ] && return 0
	fail "$what: exit status $status, not $wanted"
	tail -n 20 "$errors" "$out"
}

# holds PATTERN WHAT: a line of the last output matches.
holds() {
	grep -qE -- "$1" "$out" || { fail "$2: no line matches '$1'"; head -n 40 "$out"; }
}

lacks() {
	if grep -qE -- "$1" "$out"; then
		fail "$2: a line matches '$1'"
		grep -E -- "$1" "$out" | head -n 5
	fi
}

# counts N PATTERN WHAT: N lines of the last output match.
counts() {
	local n
	n=$(grep -cE -- "$2" "$out")
	[ "$n" = "$1" ] || fail "$3: $n lines match '$2', not $1"
}

on() {
	machine=$1
	file=$machines/$1.xml
	shift
	expect 0 "$machine: $*" --xml "$file" "$@"
}

# --- every machine ---------------------------------------------------------------------

n_files=0
for file in "$machines"/*.xml; do
	name=$(basename "$file" .xml)
	n_files=$((n_files + 1))
	expect 0 "$name as text" --xml "$file"
	holds "^machine $name, from " "$name has its name"
	for section in links affinity routes settings build; do
		holds "^$section\\b" "$name has $section"
	done
	# A route that is reported as direct needs a link.
	expect 0 "$name as JSON" --xml "$file" --json
	if command -v python3 > /dev/null; then
		python3 - "$out" "$name" <<'END' || failed=1
import json, sys
machine = json.load(open(sys.argv[1]))
name, bad = sys.argv[2], 0
def check(holds, what):
    global bad
    if not holds:
        print("FAIL: %s: %s" % (name, what))
        bad = 1
for key in ("schema_version", "machine", "links", "ports", "affinity", "routes",
            "settings", "build"):
    check(key in machine, "JSON has no " + key)
links = {(l["from"], l["to"]): l for l in machine["links"]}
places = {l["from"] for l in machine["links"]}
check(len(links) == len(places) ** 2, "a link for each ordered pair of places")
ports = {p["name"] for p in machine["ports"]}
for link in machine["links"]:
    check(set(link["ports"]) <= ports, "a link names a port that there is not")
    check((link["kind"] == "none") == (link["bytes_per_s"] == 0), "only no link has no rate")
for route in machine["routes"]:
    pair = route["from"] + " to " + route["to"]
    check(route["why"], "why is told: " + pair)
    if not route["exists"]:
        continue
    check(sum(p["bytes"] for p in route["paths"]) == route["bytes"],
          "shares make the whole: " + pair)
    for path in route["paths"]:
        legs = [(route["from"], route["to"])]
        if path["via"]:
            legs = [(route["from"], path["via"]), (path["via"], route["to"])]
        check(all(links[leg]["kind"] != "none" for leg in legs),
              "a path over a link that there is not: " + pair)
for gpu in machine["affinity"]:
    nics = {n["name"] for n in machine["machine"]["nics"]}
    check(gpu["nic"] in nics or not nics, "a GPU has a NIC that there is")
sys.exit(bad)
END
	fi
done
[ "$n_files" -ge 8 ] || fail "$n_files machines in $machines, 8 at least expected"

# The rail to other nodes: without UCX both say why.
CEOVERLAP_NICS=lo expect 0 "a rail" build
if holds "^  net +(yes|built, not usable) " "the mover to other nodes" && grep -q "^  net  *yes" "$out"
then
	holds "^  lo +yes +UCX [0-9.]+, network interface lo" "a rail that can be used"
	CEOVERLAP_NICS=lo CEOVERLAP_TRANSPORTS=nosuch expect 0 "transports that do not exist" build
	holds "CEOVERLAP_TRANSPORTS=nosuch: " "the variable that names them"
	CEOVERLAP_NICS=nosuch0 expect 0 "a rail that cannot be used" build
	holds "^  net +built, not usable +.*no network interface 'nosuch0'" "the mover says why"
	holds "^  nosuch0 +no +.*no network interface 'nosuch0'" "an interface that does not exist"
fi

# Of several that are named the first, where there is no GPU that one of them is near.
CEOVERLAP_NICS=lo,nosuch0 expect 0 "a rail of two that are named" --xml "$machines/two-no-p2p.xml" build
holds "^  lo +(yes|no) " "the first of those that are named"
holds "why: the first that was named" "why it is this one"

# No GPU, or no NIC that UCX has: UCX chooses, and the reason is told.
CEOVERLAP_NICS='' expect 0 "a rail that nobody names" build
holds "^  [^ ]+ +(yes|no) " "a rail that nobody named"
holds "^ +why: [a-zA-Z]" "why it is opened"
CEOVERLAP_NICS='' CEOVERLAP_TRANSPORTS=posix expect 0 "the rail of a machine's file" --xml "$machines/two-no-p2p.xml" build
holds "why: the transport can use none of the machine's network cards" "cards that are not here"
holds "no rail +why not: the transport cannot use it" "each of the cards, and why it is not used"

# --- each for what it is ---------------------------------------------------------------

on h200x8-nvswitch machine links affinity
holds "GPUs 8 on NVLink switches, NUMA nodes 2, NICs 9" "the machine is counted"
holds "^  0000:4d:00.0 +gpu2 mlx5_2$" "a switch and what is below it"
holds "^  gpu7 .* 0000:da:00.0 " "a GPU below its switch"
holds "^  gpu0 +self( +NVSwitch\\+){7}" "all GPUs on the switch"
for gpu in 0 1 2 3 4 5 6 7; do
	holds "^  gpu$gpu +node[01] +mlx5_$gpu " "gpu$gpu has the NIC beside it"
done
on h200x8-nvswitch --route node0:gpu5 --all --bytes 1G
holds "^    relayed +gpu" "host to GPU is relayed by peers"
holds "^    direct +- " "beside the direct path"
on h200x8-nvswitch --route 2:3 --all
holds "^    staged +node0 " "a pair stages beside NVLink"
on h200x8-nvswitch --route gpu2:gpu3 --bytes 64K --all
lacks "^    staged" "little goes directly"

on vm-flat machine links affinity
holds "GPUs 8, NUMA nodes 1, NICs 1" "the machine is counted"
lacks "PCI switch" "a flat bus has no switch"
holds "^  gpu3 +0000:00:08.0 +node0 +- +- " "nobody tells the link's speed"
holds "^  gpu0 +self( +PCIe){7} +host$" "all pairs over PCIe, at the costs of its kind"

on pcie4-two-nodes machine links affinity
holds "GPUs 4, NUMA nodes 2, NICs 2" "the machine is counted"
holds "^  gpu1 +node0 +mlx5_0 " "the first node's NIC"
holds "^  gpu2 +node1 +mlx5_1 " "the second node's NIC"
holds "^  gpu0 +self( +PCIe\\+){3}" "pairs over PCIe, also between packages"

on pcie8-switches-nics machine affinity ports
holds "^  0000:85:00.0 +gpu4 gpu5 mlx5_2$" "two GPUs and a NIC below a switch"
holds "^  gpu5 +node1 +mlx5_2 " "its NIC serves both"
holds "^ +[0-9.]+ +[0-9]+ 0000:85:00.0 up$" "the switch's way up is shared"

on v100x8-mesh links affinity
holds "^  gpu0 +self( +NVLink\\+){4}( +none){3} " "the mesh's links"
holds "^  gpu0 +[0-9.]+ +([0-9.]+) +\\1 +([0-9.]+) +\\2 +- +- +- " "twice the links, one rate"
holds "^  gpu6 +node1 +mlx5_3 " "the switch's NIC"
on v100x8-mesh --route gpu0:gpu7 --all
holds "^  rule direct: no route: " "no direct copy between packages without a link"
holds "^    middle +gpu[34] " "but through a neighbour of both"

on grace-hopper machine links
holds "GPUs 4, NUMA nodes 8, NICs 4" "the machine is counted"
holds "^  node1 +4 .*memory of a GPU$" "GPU memory is a node"
counts 4 "^  gpu.*coherent" "all GPUs are coherent"
holds "^  gpu0 +self( +NVLink\\+){3} +C2C" "NVLink among GPUs, C2C to the host"

on laptop
holds "GPUs 0, NUMA nodes 1, NICs 1" "a display controller of others is no GPU"
holds "^affinity: there is no GPU" "no affinity"
holds "^routes: there is no GPU" "no routes"

on two-no-p2p links
holds "^  gpu0 +self +none " "P2P is not allowed"
on two-no-p2p --route gpu0:gpu1
holds "^  rule direct: no route: " "not directly"
holds "^    staged +node0 " "through the host"
expect 2 "a GPU that is not there" --xml "$machines/laptop.xml" --route gpu0:gpu1
grep -q -- "--route gpu0:gpu1: gpu0 is not on this machine; it has node0 to node0" "$errors" || {
	echo "FAIL: it is not said which place is missing"
	failed=1
}
expect 1 "a route that does not exist" --xml "$machines/two-no-p2p.xml" --route 0:1 \
	--rule direct

# --- this machine, whatever it is ------------------------------------------------------

expect 0 "this machine"
holds "^machine .*, this one$" "it says which"
holds "^  host +yes" "host memory can always be used"
expect 0 "this machine as JSON" --json
[ -e "$XDG_CACHE_HOME" ] && fail "looking leaves nothing in the cache"

# --- written and read again ------------------------------------------------------------

# known [--xml FILE]: prints all that is known of a machine but the file's name.
known() {
	"$info" "$@" --json machine links ports affinity | grep -v '"file":'
}

# comes_back NAME [--xml FILE]: writes the machine to NAME and asserts that reading gives the same.
comes_back() {
	local name=$1
	shift

	expect 0 "$name is written" "$@" --export "$folder/again.xml"
	[ -s "$out" ] && fail "$name: --export alone prints"
	known "$@" > "$folder/first.json"
	known --xml "$folder/again.xml" > "$folder/second.json"
	[ -s "$folder/first.json" ] || fail "$name: nothing to compare"
	if ! cmp -s "$folder/first.json" "$folder/second.json"; then
		fail "$name: written and read again it differs"
		diff "$folder/first.json" "$folder/second.json" | head -n 10
	fi
	if command -v lstopo-no-graphics > /dev/null &&
	    ! lstopo-no-graphics -i "$folder/again.xml" --of console > "$out" 2>&1; then
		fail "$name: lstopo does not read what was written"
	fi
}

for file in "$machines"/*.xml; do
	comes_back "$(basename "$file" .xml)" --xml "$file"
done
comes_back "this machine"
expect 1 "a file that cannot be written" --xml "$machines/laptop.xml" \
	--export /nonexistent/x.xml
if [ -w /dev/full ]; then
	"$info" build > /dev/full 2> "$errors"
	[ $? = 1 ] || fail "output that cannot be written is no success"
fi

# --- settings ---------------------------------------------------------------------------

expect 0 "settings" settings
while read -r variable; do
	holds " $variable " "the variable $variable, which src/ reads, is a setting"
done < <(grep -rhoE '(getenv|number_from|variable_number)\([^;]*"CEOVERLAP_[A-Z_]+"' \
	"$srcdir/src" | grep -oE 'CEOVERLAP_[A-Z_]+' | sort -u)
# Every variable that the library and the Python package read is known.
empty=()
while read -r variable; do
	empty+=("$variable=")
done < <(grep -rhoE '(getenv|environ|number_from|variable_number)[^;]*"CEOVERLAP_[A-Z_]+"' \
	"$srcdir"/src "$srcdir"/python/ceoverlap "$srcdir"/python/lib/setup.py \
	--include='*.[ch]' --include='*.py' | grep -oE 'CEOVERLAP_[A-Z_]+' | sort -u)
[ "${#empty[@]}" -gt 15 ] || fail "variables that are read: only ${#empty[@]} were found"
env "${empty[@]}" "$info" settings > "$out" 2> "$errors"
lacks "nobody reads" "a variable that is read is known"

expect 0 "settings" settings
holds "^  rank +default +CEOVERLAP_RANK +0$" "a default"
lacks "would refuse" "an empty environment will do"

export CEOVERLAP_RANK=3 CEOVERLAP_RANKS=4 CEOVERLAP_GROUP=/run/x CEOVERLAP_RUNK=1
expect 0 "settings of the environment" settings
holds "^  ranks +environment +CEOVERLAP_RANKS +4$" "a variable's value"
holds "^  CEOVERLAP_RUNK: nobody reads" "a variable with a typing error"
lacks "would refuse" "a good environment will do"
CEOVERLAP_RANK=9 expect 0 "settings that cannot be" settings
holds "would refuse: .*rank 9" "what ceov_open() would say"
CEOVERLAP_RANK=9 expect 0 "the same as JSON" --json settings
holds '"settings_refused": ?".*rank 9' "in JSON, too"
unset CEOVERLAP_RANK CEOVERLAP_RANKS CEOVERLAP_GROUP CEOVERLAP_RUNK

CEOVERLAP_MACHINE=$machines/laptop.xml expect 0 "a machine of the environment" machine
holds "^machine laptop, .*\\(CEOVERLAP_MACHINE\\)$" "it is told where it comes from"
CEOVERLAP_ROUTES=all expect 0 "routes of the environment" \
	--xml "$machines/h200x8-nvswitch.xml" routes
holds "^routes of .*, rule all$" "the rule is the environment's"

# --- files that are no machine ----------------------------------------------------------

# refused FILE WHAT: exit status 1, and a line that names the file.
refused() {
	expect 1 "$2" --xml "$1"
	if ! grep -F -- "ceoverlap: error: " "$errors" | grep -qF -- "$(basename "$1")"; then
		fail "$2: no line names the file"
		cat "$errors"
	fi
	[ -s "$out" ] && fail "$2: something is told all the same"
}

good=$machines/h200x8-nvswitch.xml
refused /nonexistent/machine.xml "a file that is not there"
refused "$folder" "a folder"
: > "$folder/empty.xml"
refused "$folder/empty.xml" "an empty file"
echo 'PCI bus 0' > "$folder/words.xml"
refused "$folder/words.xml" "words"
head -c 4096 /dev/urandom > "$folder/noise.xml"
refused "$folder/noise.xml" "noise"
head -c 9000 "$good" > "$folder/cut.xml"
refused "$folder/cut.xml" "half a file"
echo '<?xml version="1.0"?><machine/>' > "$folder/root.xml"
refused "$folder/root.xml" "another root"
sed 's/type="NUMANode"/type="Toaster"/' "$good" > "$folder/type.xml"
refused "$folder/type.xml" "objects that there are not"
sed 's/0000:41:00.0/0000:19:00.0/' "$good" > "$folder/twice.xml"
refused "$folder/twice.xml" "two GPUs at one place"

# Other bytes than ASCII in names must not reach the terminal.
sed 's/mlx5_3/\xc2\x9b31m/; s/value="h200x8-nvswitch"/value="\xc3\xa9\xe2\x80\xae"/' "$good" \
	> "$folder/names.xml"
expect 0 "names in other letters" --xml "$folder/names.xml"
LC_ALL=C lacks $'[\x80-\xff]' "only ASCII is printed"

# --- arguments --------------------------------------------------------------------------

expect 0 "help" --help
expect 0 "version" --version
holds "^ceoverlap [0-9]" "the version"
expect 2 "an unknown section" nothing
expect 2 "an unknown option" --nothing
expect 2 "a route of one place" --route gpu0
expect 2 "a route to itself" --xml "$good" --route gpu0:gpu0
expect 2 "a place that there is not" --xml "$good" --route gpu0:gpu8
grep -q "gpu0 to gpu7" "$errors" || fail "the places that there are are told"
expect 2 "a size that is none" --bytes 3Q
expect 2 "no bytes" --bytes 0
expect 2 "an unknown rule" --rule some
exit "$failed"
