#!/bin/sh
# scripts/browser.sh
#
# Opens the report of `tollgate replay --html` in chromium, on a wide screen, a dark screen and a
# phone. The page must write nothing to the console and show all its parts. Screenshots stay in
# target/report.
set -eu

cargo=${CARGO:-cargo}
folder=target/report
log=crates/tollgate-cli/tests/data/access.log

"$(dirname "$0")"/need.sh chromium "which opens the page of a replay" || { test -z "${CI:-}"; exit; }
mkdir -p "$folder"
rm -f "$folder"/*.png "$folder"/*.log
$cargo run --locked -p tollgate-cli --no-default-features --features html -- replay "$log" \
	--limit '30/min burst 10' --html "$folder/report.html" > /dev/null
page="file://$PWD/$folder/report.html"

# open NAME OPTION...
open() {
	name=$1
	shift
	# Chromium has no sandbox for root. The page is our own and needs none.
	timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr \
		--user-data-dir="$folder/profile" "$@" "$page" > "$folder/$name.html.log" 2> "$folder/$name.log"
	if grep CONSOLE "$folder/$name.log"; then
		echo "The page wrote to the console ($name)."
		exit 1
	fi
}

screenshot() {
	name=$1
	shift
	open "$name" --screenshot="$folder/$name.png" "$@"
	test "$(wc -c < "$folder/$name.png")" -gt 50000 || { echo "$folder/$name.png is empty"; exit 1; }
}

screenshot wide --window-size=1280,2500
screenshot dark --window-size=1280,2500 --blink-settings=preferredColorScheme=0
screenshot phone --window-size=390,4000
open parts --dump-dom
for part in When 'How busy clients are' 'Who is denied' 'How long they would have waited' \
	'Algorithms compared' 'How this was made'; do
	grep -q "<h2>$part</h2>" "$folder/parts.html.log" || { echo "The page has no part '$part'."; exit 1; }
done
# The DOM in the browser must have no element that could load or run anything.
for element in script iframe img link object; do
	if grep -q "<$element" "$folder/parts.html.log"; then
		echo "The page has an element '$element'."
		exit 1
	fi
done
# The picture of docs/replay.md.
if [ "${REPORT:-}" = draw ]; then
	page="file://$PWD/docs/report.html"
	open docs --screenshot=docs/report.png --window-size=1000,860
fi
rm -rf "$folder/profile"
echo "The page of a replay: nothing on the console; screenshots are in $folder"
