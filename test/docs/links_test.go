package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/deltarouter/deltarouter/test/must"
)

const root = "../.."

// TestLinks: each link of each document leads to a file of the repository, and its anchor to a
// heading there. Links to other hosts are only parsed.
func TestLinks(t *testing.T) {
	documents := readDocuments(t)
	anchors := map[string]map[string]bool{}
	for name, text := range documents {
		anchors[name] = anchorsOf(text)
	}
	links := 0
	for name, text := range documents {
		for _, link := range linksOf(text) {
			links++
			if problem := brokenLink(anchors, name, link); problem != "" {
				t.Errorf("%s: %s: %s", name, link, problem)
			}
		}
	}
	if links < 150 {
		t.Errorf("only %d links were found", links)
	}
}

// TestBrokenLinks: the check finds broken links, so that it can be relied on.
func TestBrokenLinks(t *testing.T) {
	const text = "# A `b`: c\n## A b c\n```\n# not this\n[x](nowhere)\n```\n`[y](nowhere)` [z](#a-b-c-1) <img src=\"i.svg\">\n"
	if got := fmt.Sprint(linksOf(text)); got != "[#a-b-c-1 i.svg]" {
		t.Errorf("links: %s", got)
	}
	anchors := map[string]map[string]bool{"docs/A.md": anchorsOf(text), "README.md": {}}
	for link, want := range map[string]string{
		"#a-b-c": "", "#a-b-c-1": "", "../README.md": "", "https://example.com/x#y": "", "../go.mod": "",
		"#not-this": "no such heading", "../README.md#x": "no such heading", "B.md": "no such file", "https://a b/": "no URL",
	} {
		if got := brokenLink(anchors, "docs/A.md", link); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}

// readDocuments returns the text of all Markdown files of the repository by their path.
func readDocuments(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && (name != "." && base[0] == '.' || name == "bin" || base == "node_modules" || base == "testdata" || base == "target"):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".md":
			text, err := os.ReadFile(filepath.Join(root, name))
			documents[name] = string(text)
			return err
		}
		return nil
	})
	must.Succeed(t, err)
	return documents
}

var (
	fence    = regexp.MustCompile("(?ms)^ *(?:```|~~~).*?^ *(?:```|~~~)$")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linked   = regexp.MustCompile(`\]\(([^)]+)\)|(?:src|srcset|href)="([^"]+)"`)
)

// linksOf returns the targets of the links and images of a document.
func linksOf(text string) (links []string) {
	text = codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		links = append(links, m[1]+m[2])
	}
	return links
}

// anchorsOf returns the anchors that GitHub gives the headings of a document.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := linked.ReplaceAllString(m[1], "")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		unique := slug
		for i := 1; anchors[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", slug, i)
		}
		anchors[unique] = true
	}
	return anchors
}

// brokenLink returns the problem of a link of a document, or "".
func brokenLink(anchors map[string]map[string]bool, document, link string) string {
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return "no URL"
	case u.Scheme != "":
		return ""
	}
	target := document
	if u.Path != "" {
		target = path.Join(path.Dir(document), u.Path)
		if _, err := os.Stat(filepath.Join(root, target)); err != nil && anchors[target] == nil {
			return "no such file"
		}
	}
	if u.Fragment != "" && !anchors[target][u.Fragment] {
		return "no such heading"
	}
	return ""
}
