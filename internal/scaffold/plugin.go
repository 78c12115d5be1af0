package scaffold

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/similar"
	"github.com/deltarouter/deltarouter/sdk"
)

// language is a language that handlers are written in. Templates are in templates/plugin/<name>;
// one called source.EXT becomes NAME.EXT.
type language struct {
	name   string // of -lang
	title  string
	source string // the file of the handler; %s is the name of the handler
	build  string // the command that builds the module; %s is the name of the handler
	needs  string // the requirements of the build
	more   string // a paragraph of the README; may be empty
}

var languages = []language{
	{
		name: "assemblyscript", title: "AssemblyScript", source: "%s.ts",
		build: "npm install && npm run build", needs: "Node 20 or later, and the network for the npm package assemblyscript",
		more: "`sdk/README.md` shows how to test the module in node.",
	},
	{
		name: "c", title: "C", source: "%s.c",
		build: "sh build.sh", needs: "clang and wasm-ld (Debian: `clang lld`), and no library",
		more: "`sdk/README.md` shows how to test the handler as a program for your machine.",
	},
	{
		name: "go", title: "Go", source: "main.go",
		build: "GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o %s.wasm .", needs: "Go 1.26 or later, and no network",
		more: "`go test .` calls the handler with the deltas in `testdata`.",
	},
	{
		name: "javascript", title: "JavaScript", source: "%s.js", build: "router check",
	},
	{
		name: "rust", title: "Rust", source: "%s.rs",
		build: "sh build.sh", needs: "rustc 1.63 or later with the target wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`, Debian: `rustc libstd-rust-dev-wasm32`)",
		more: "`cargo test` calls the handler; the build needs no Cargo.",
	},
}

// Languages lists the languages that [Plugin] takes, in alphabetical order.
func Languages() []string {
	names := make([]string, len(languages))
	for i, l := range languages {
		names[i] = l.name
	}
	return names
}

// pluginName is a name that a handler, a Go module, a crate and an npm package may have.
var pluginName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Plugin writes a handler into the folder dir, whose name becomes that of the handler: source, SDK,
// a configuration that uses it, cases and a README. It returns the command that builds it in dir.
func Plugin(dir, lang string) (build string, err error) {
	at := slices.IndexFunc(languages, func(l language) bool { return l.name == lang })
	if at < 0 {
		return "", fmt.Errorf("there is no template for the language %q%s", lang, similar.Suggest(lang, Languages()))
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("folder %s: %w", dir, fileerr.Cause(err))
	}
	name := filepath.Base(full)
	if !pluginName.MatchString(name) {
		return "", fmt.Errorf("%q names the handler, too: name the folder with lower-case letters, digits and hyphens, as in restart-alert", name)
	}
	l := languages[at].of(name)
	files, err := l.files(dir, name)
	if err != nil {
		return "", err
	}
	return l.build, write(files)
}

// of fills in the name of the handler.
func (l language) of(name string) language {
	l.source, l.build = strings.ReplaceAll(l.source, "%s", name), strings.ReplaceAll(l.build, "%s", name)
	return l
}

// files renders the templates and adds the SDK.
func (l language) files(dir, name string) (files []file, err error) {
	more := ""
	if l.more != "" {
		more = "\n\n" + l.more
	}
	values := map[string]string{"Name": name, "Language": l.title, "Build": l.build, "Needs": l.needs, "Source": l.source, "More": more}
	for _, folder := range []string{"templates/plugin/all", "templates/plugin/" + l.name} {
		err := fs.WalkDir(templates, folder, func(from string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			to := strings.TrimPrefix(strings.TrimSuffix(from, templateSuffix), folder+"/")
			if ext, ok := strings.CutPrefix(to, "source."); ok {
				to = name + "." + ext
			}
			text, err := render(from, values)
			path := filepath.Join(dir, filepath.FromSlash(to))
			// a template of the language replaces one for all
			files = slices.DeleteFunc(files, func(f file) bool { return f.path == path })
			files = append(files, file{path, text})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	copies, err := l.sdk(filepath.Join(dir, "sdk"))
	return append(files, copies...), err
}

// sdk returns the files of the SDK, below a folder.
func (l language) sdk(dir string) (files []file, err error) {
	if l.name == "go" {
		text, err := sdk.Files.ReadFile("go.txtar")
		if err != nil {
			return nil, fmt.Errorf("SDK: %w", err)
		}
		for _, f := range txtar.Parse(text).Files {
			files = append(files, file{filepath.Join(dir, filepath.FromSlash(f.Name)), f.Data})
		}
		return files, nil
	}
	err = fs.WalkDir(sdk.Files, l.name, func(from string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sdk.Files.ReadFile(from)
		files = append(files, file{filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(from, l.name+"/"))), text})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("SDK: %w", err)
	}
	return files, nil
}
