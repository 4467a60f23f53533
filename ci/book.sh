#!/usr/bin/env bash
# Makes a book of the documents, target/book/html, and checks that its links lead somewhere. Builds
# mdBook into target/tools, unless it is installed.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

MDBOOK_VERSION=0.5.4

usage() {
    cat <<EOF
usage: ci/book.sh
EOF
}

case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
need python3:python3
cd "$TOP"
PATH=$PATH:$TOP/target/tools/bin
if ! command -v mdbook >/dev/null; then
    note "building mdBook $MDBOOK_VERSION"
    cargo install --quiet --locked --version "$MDBOOK_VERSION" --no-default-features \
        --features search --root target/tools mdbook
fi

# The files that the documents name lie beside them, as in the repository.
SRC=target/book/src
rm -rf target/book
mkdir -p $SRC/crates/engine
cp -r ./*.md docs examples $SRC
cp -r crates/engine/examples $SRC/crates/engine
rm $SRC/docs/SUMMARY.md
sed -E 's|\]\(([A-Za-z0-9])|](docs/\1|; s|\]\(\.\./|](|' docs/SUMMARY.md >$SRC/SUMMARY.md
# mdBook makes README.html an index.html, but does not rename links to a heading in it.
find $SRC -name README.md -execdir mv {} index.md ';'
find $SRC -name '*.md' -exec sed -Ei 's|\]\(([^):]*)README\.md|](\1index.md|g' {} +
mdbook build . >/dev/null

python3 - target/book/html <<'EOF'
import html.parser, os, sys, urllib.parse

top = sys.argv[1]
pages = {}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == 'id':
                self.ids.add(value)
            elif name in ('href', 'src') and value:
                self.links.append(value)


for folder, _, names in os.walk(top):
    for name in names:
        path = os.path.join(folder, name)
        # These show the text of all others, or a page for an address that is not there.
        if name.endswith('.html') and name not in ('print.html', '404.html', 'toc.html'):
            pages[path] = Page(open(path, encoding='utf-8').read())

broken = []
for path, page in pages.items():
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            continue
        base = os.path.dirname(path)
        to = os.path.normpath(os.path.join(base, urllib.parse.unquote(url.path)))
        to = path if not url.path else to
        anchor = urllib.parse.unquote(url.fragment)
        if not os.path.exists(to) or anchor and to in pages and anchor not in pages[to].ids:
            broken.append(f'{os.path.relpath(path, top)}: {link}')
print('\n'.join(sorted(set(broken))), end='\n' if broken else '')
print(f'{len(pages)} pages, {len(set(broken))} links that lead nowhere')
sys.exit(1 if broken else 0)
EOF
