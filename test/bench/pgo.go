package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// profileFile is the name of the CPU profile in the folder of a router.
const profileFile = "profile"

// recordProfile writes a CPU profile of the router for the compiler (profile-guided optimization):
// of its start and of updates, in each task of compareWhole, with and without a state folder.
func recordProfile(file string, objects, updates int) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	b, remove, err := profiledRouters(objects)
	defer remove()
	if err != nil {
		return err
	}
	b.settings = wholeSettings
	module, err := buildGuest(wholeModule, b.dir)
	if err != nil {
		return err
	}
	args := []string{"tool", "pprof", "-proto", "-output", file}
	for _, task := range routerTasks(module) {
		for _, keeps := range []kept{nothing, everything} {
			fmt.Fprintf(os.Stderr, "%s, with a state folder: %v\n", task.name, keeps != nothing)
			b.secure = task.likeAPIServer
			p, err := b.open(task.router, keeps)
			if err != nil {
				return fmt.Errorf("%s: %w", task.name, err)
			}
			if _, err = p.measure(task.router, updates); err == nil {
				err = p.profiled()
			}
			p.close()
			if err != nil {
				return fmt.Errorf("%s: %w", task.name, err)
			}
			args = append(args, filepath.Join(p.dir, profileFile))
		}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go tool pprof: %w\n%s", err, out)
	}
	return nil
}

// profiledRouters builds a router that writes a profile, in a folder that remove removes.
func profiledRouters(objects int) (b *routers, remove func(), err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	overlay, err := profileOverlay(dir)
	if err != nil {
		return nil, remove, err
	}
	b = &routers{dir: dir, objects: objects, profile: true, flags: []string{"-overlay", overlay, "-pgo=off"}}
	return b, remove, b.build()
}

// routerTasks returns the tasks that differ for the router.
func routerTasks(module string) []wholeTask {
	return slices.DeleteFunc(wholeTasks(module), func(t wholeTask) bool { return t.hand.Unbounded })
}

// profiled ends the profile of the router, and waits until it is written.
func (p *process) profiled() error {
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	return p.wait(func() bool {
		_, err := os.Stat(filepath.Join(p.dir, profileFile))
		return err == nil
	})
}

// profileOverlay returns the file for go build -overlay by which a router writes a profile.
func profileOverlay(dir string) (string, error) {
	const source, place = "testdata/profile.go", "../../cmd/router/profile.go"
	paths := make([]string, 2)
	for i, path := range []string{place, source} {
		var err error
		if paths[i], err = filepath.Abs(path); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {paths[0]: paths[1]}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// comparePGO compares the router's binary with one that is built without cmd/router/default.pgo. It
// measures nothing if that file is missing.
func comparePGO(out *report.Report, objects, updates, rounds int) error {
	if _, err := os.Stat("../../cmd/router/default.pgo"); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "pgo: not measured, because cmd/router/default.pgo is missing: go -C test/bench run . -profile ../../cmd/router/default.pgo records it")
		return nil
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	module, err := buildGuest(wholeModule, dir)
	if err != nil {
		return err
	}
	without, err := buildWithPGO("off", dir, objects)
	if err != nil {
		return err
	}
	with, err := buildWithPGO("auto", dir, objects)
	if err != nil {
		return err
	}
	t := pgoTable(objects, updates, rounds)
	for _, task := range routerTasks(module) {
		row, err := comparePair(without, with, task, updates, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", task.name, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return out.Add(t)
}

// buildWithPGO builds the router with a value of the flag -pgo of go build.
func buildWithPGO(pgo, dir string, objects int) (*routers, error) {
	b := &routers{dir: filepath.Join(dir, pgo), objects: objects, settings: wholeSettings, flags: []string{"-pgo=" + pgo}}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return nil, err
	}
	return b, b.build()
}

func pgoTable(objects, updates, rounds int) report.Table {
	return report.Table{
		Part: "pgo", Title: "The profile for the compiler",
		Text: fmt.Sprintf("The router's binary, built with cmd/router/default.pgo, and one without it. CPU of the process for an update, divided by that without it "+
			"in the same round: the median of the rounds, the lowest and the highest. %d pods, %d updates in a turn, %d rounds.", objects, updates, rounds),
		Labels: []string{"task"},
		Columns: []report.Column{
			{Name: "CPU µs/update without", Format: "%.1f"},
			{Name: "with", Format: "%.1f"},
			{Name: "CPU", Format: "%.2f", Ratio: true},
			{Name: "lowest", Format: "%.2f", Ratio: true},
			{Name: "highest", Format: "%.2f", Ratio: true},
		},
	}
}

// comparePair measures two binaries of the router in turns.
func comparePair(without, with *routers, task wholeTask, updates, rounds int) (row report.Row, err error) {
	var all []*wholeProcess
	for _, b := range []*routers{without, with} {
		p, err := b.openWhole(task, "deltarouter")
		if err != nil {
			return row, err
		}
		defer p.close()
		all = append(all, p)
	}
	used, err := takeTurns(all, task.name, updates, rounds)
	if err != nil {
		return row, err
	}
	ratios := quotients(used[1], used[0])
	return report.Row{
		Labels:  []string{task.name},
		Figures: []float64{middle(used[0]), middle(used[1]), middle(ratios), slices.Min(ratios), slices.Max(ratios)},
	}, nil
}
