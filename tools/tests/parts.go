package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/test/targets"
)

// part is one command of a target.
type part struct {
	name    string
	dir     string // where it runs
	env     []string
	command []string
	json    bool // the command is go test -json
}

// repository has the packages and modules of which the parts are made.
type repository struct {
	packages []pkg    // of the root module, those with tests
	modules  []string // the folders of the other modules
}

type pkg struct {
	folder  string
	imports []string // also those of its tests
	less    bool     // some of its tests do nothing, or less, with the race detector
}

// read asks the go command for the packages, and looks for modules.
func read(root string) (*repository, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Module,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	r := &repository{}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			ImportPath, Dir                    string
			Module                             struct{ Path string }
			Imports, TestImports, XTestImports []string
			TestGoFiles, XTestGoFiles          []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if files := slices.Concat(p.TestGoFiles, p.XTestGoFiles); len(files) > 0 {
			less, err := mention(p.Dir, files, "effort.Race")
			if err != nil {
				return nil, err
			}
			r.packages = append(r.packages, pkg{
				strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/"),
				slices.Concat(p.Imports, p.TestImports, p.XTestImports),
				less,
			})
		}
	}
	r.modules, err = modules(root)
	return r, err
}

// mention reports whether one of the files of a folder has a word.
func mention(dir string, files []string, word string) (bool, error) {
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || bytes.Contains(text, []byte(word)) {
			return err == nil, err
		}
	}
	return false, nil
}

// modules returns the folders of the modules below the root that have tests.
func modules(root string) (dirs []string, err error) {
	all, tested := map[string]bool{}, map[string]bool{} // folders
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"bin", "dist", "node_modules", "testdata", ".git"}, d.Name()) {
			return fs.SkipDir
		}
		if d.Name() == "go.mod" {
			all[filepath.Dir(path)] = true
		}
		if strings.HasSuffix(d.Name(), "_test.go") {
			tested[filepath.Dir(path)] = true
		}
		return nil
	})
	for dir := range tested {
		for !all[dir] && dir != root {
			dir = filepath.Dir(dir)
		}
		if folder := filepath.ToSlash(dir); dir != root && !slices.Contains(dirs, folder) {
			dirs = append(dirs, folder)
		}
	}
	slices.Sort(dirs)
	return dirs, err
}

// oneMore runs the tests of one package more than there are cores: they wait for a fifth of their
// time. Those of make e2e run several tests of a package at a time already.
var oneMore = fmt.Sprintf("-p=%d", runtime.GOMAXPROCS(0)+1)

// plain is the environment of the build of the router, whose cached packages the tests use.
var plain = []string{"CGO_ENABLED=0"}

// parts returns the parts of a target.
func (r *repository) parts(target string, names []string) ([]part, error) {
	if target == targets.E2E && slices.Equal(names, []string{"oldest"}) {
		return oldest()
	}
	if target != targets.Soak && len(names) > 0 {
		return nil, fmt.Errorf("%s does not know %q", target, names)
	}
	switch target {
	case targets.Test:
		all := r.folders(func(p pkg) bool { return !targets.Processes(p.folder) })
		parts := []part{goTest("packages", ".", plain, all, oneMore, "-timeout=15m"), smoke()}
		return append(append(parts, r.moduleParts(false)...), native()), nil
	case targets.Race:
		return []part{r.race(targets.Race, nil)}, nil
	case targets.E2E:
		return r.e2e(nil), nil
	case targets.All:
		full := []string{"EFFORT=full"}
		rest := r.folders(func(p pkg) bool {
			return !targets.Processes(p.folder) && (p.less || !targets.Raced(targets.All, p.folder, p.imports))
		})
		parts := []part{goTest("packages without concurrency, and those whose tests do less with the race detector", ".", append(full, plain...), rest, oneMore, "-shuffle=on", "-timeout=60m")}
		parts = append(append(append(parts, r.moduleParts(false)...), native()), r.race(targets.All, full))
		return append(parts, r.e2e(full)...), nil
	case targets.Soak:
		return soak(names)
	}
	return nil, fmt.Errorf("%q is no target: test, race, e2e, test-all or soak", target)
}

// folders returns the packages that are wanted, as arguments of go test.
func (r *repository) folders(wanted func(pkg) bool) (args []string) {
	for _, p := range r.packages {
		if wanted(p) {
			args = append(args, "./"+p.folder)
		}
	}
	return args
}

// withRace is the environment of the race detector, which needs cgo. A program with it would wait
// for a second before it ends, for races of goroutines that still run: goleak finds those.
var withRace = []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=0"}

func (r *repository) race(target string, env []string) part {
	raced := r.folders(func(p pkg) bool { return targets.Raced(target, p.folder, p.imports) })
	return goTest("packages with concurrency, race detector", ".", slices.Concat(withRace, env), raced, oneMore, "-race", "-shuffle=on", "-timeout=60m")
}

// checkCompiler returns an error if the race detector cannot be used: cgo needs a C compiler with
// its headers, which a build shows.
func checkCompiler() error {
	cmd := exec.Command("go", "build", "-race", "runtime/cgo")
	cmd.Env = append(os.Environ(), withRace...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the race detector needs a C compiler with the headers of its library (Debian: gcc libc6-dev): %w\n%s", err, out)
	}
	return nil
}

func (r *repository) e2e(env []string) []part {
	var processes []string
	for _, folder := range targets.ProcessFolders { // go test starts them in this order
		processes = append(processes, r.folders(func(p pkg) bool { return p.folder == folder })...)
	}
	// The programs that they start are no input of a cached result.
	parts := []part{goTest("processes", ".", slices.Concat(plain, env), processes, "-count=1", "-shuffle=on", "-timeout=60m")}
	for _, p := range r.moduleParts(true) {
		p.env = append(p.env, env...)
		parts = append(parts, p)
	}
	return parts
}

func oldest() ([]part, error) {
	sandbox, err := filepath.Abs(filepath.Join("bin", "sandbox-oldest"))
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, f := range targets.OldestFolders {
		folders = append(folders, "./"+f)
	}
	return []part{goTest("processes on the oldest Kubernetes", ".", append([]string{"SANDBOX=" + sandbox}, plain...), folders,
		"-count=1", "-timeout=60m", "-run=^("+strings.Join(targets.Oldest, "|")+")", "-skip="+targets.NotOldest)}, nil
}

func smoke() part {
	return goTest("smoke: some tests of "+targets.SmokeFolder, ".", plain, []string{"./" + targets.SmokeFolder},
		"-run=^("+strings.Join(targets.Smoke, "|")+")$", "-timeout=15m")
}

// moduleParts returns a part for each module beside the root.
func (r *repository) moduleParts(processes bool) (parts []part) {
	for _, dir := range r.modules {
		if slices.Contains(targets.ProcessModules, dir) != processes {
			continue
		}
		flags := []string{"-timeout=60m"}
		if processes {
			// They read files outside of the module, which go does not compare.
			flags = append(flags, "-count=1", "-shuffle=on")
		}
		parts = append(parts, goTest(dir, dir, plain, []string{"./..."}, flags...))
	}
	return parts
}

func soak(names []string) (parts []part, err error) {
	for _, s := range targets.Slices {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		parts = append(parts, goTest(s.Name, ".", append([]string{"EFFORT=soak"}, plain...), []string{"./" + s.Folder},
			"-count=1", "-shuffle=on", "-timeout=24h", "-run=^("+strings.Join(s.Tests, "|")+")$"))
	}
	for _, name := range names {
		if !slices.ContainsFunc(targets.Slices, func(s targets.Slice) bool { return s.Name == name }) {
			return nil, fmt.Errorf("%q is no slice of soak", name)
		}
	}
	return parts, nil
}

// native are the tests of the SDKs in other languages.
func native() part {
	return part{name: "native tests of SDKs and handlers", dir: ".", command: []string{"sh", "tools/native.sh"}}
}

func goTest(name, dir string, env, packages []string, flags ...string) part {
	command := append([]string{"go", "test", "-json", "-trimpath", "-tags=grpcnotrace", "-vet=off"}, flags...)
	return part{name: name, dir: dir, env: env, command: append(command, packages...), json: true}
}
