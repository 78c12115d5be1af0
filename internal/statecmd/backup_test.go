package statecmd_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// restored copies a backup into a new state folder, opens it as a router does, and returns its
// export.
func restored(t *testing.T, backup string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(backup)
	must.Succeed(t, err)
	path := filepath.Join(dir, "state.db")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	if db.Quarantined() != "" {
		t.Error("the backup is damaged")
	}
	must.Succeed(t, db.Close())
	code, out, errs := run(t.Context(), "export", dir)
	if code != cli.CodeOK {
		t.Error(errs)
	}
	return out
}

func fixtureExport(t *testing.T) string {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(fixture, "export.ndjson"))
	must.Succeed(t, err)
	return string(want)
}

// TestBackupOfAStoppedRouter: the file is complete, private and as old as the state, and restores.
func TestBackupOfAStoppedRouter(t *testing.T) {
	// Guarantee: backup
	dir := stateOf(t)
	for name, args := range map[string][]string{
		"a folder":        {dir},
		"a file":          {filepath.Join(dir, "state.db")},
		"a configuration": {"-config", configured(t, dir, "")},
	} {
		file := filepath.Join(t.TempDir(), "backup.db")
		code, out, errs := run(t.Context(), append(append([]string{"backup"}, args...), file)...)
		want := "Wrote " + file + ": format 8, "
		if code != cli.CodeOK || out != "" || !strings.HasPrefix(errs, want) || !strings.HasSuffix(errs, "last write 2026-11-23T12:00:00Z.\n") {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if names := namesIn(t, filepath.Dir(file)); !slices.Equal(names, []string{"backup.db"}) {
			t.Errorf("%s: there is also %q", name, names)
		}
		if got := restored(t, file); got != fixtureExport(t) {
			t.Errorf("%s: the backup has\n%s", name, got)
		}
	}
	if names := namesIn(t, dir); !slices.Equal(names, []string{"state.db"}) {
		t.Errorf("the folder has %q afterwards", names)
	}
	code, out, errs := run(t.Context(), "backup", dir, "-")
	file := filepath.Join(t.TempDir(), "backup.db")
	must.Succeed(t, os.WriteFile(file, []byte(out), 0o600))
	if code != cli.CodeOK || errs != "" || restored(t, file) != fixtureExport(t) {
		t.Errorf("to standard output: exit code %d, %s", code, errs)
	}
}

// running opens a state folder and serves it, as a router does, and returns the address of the API.
func running(t *testing.T, dir string, wrap func(api.Backup) api.Backup) (addr string) {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(dir, "state.db")})
	must.Succeed(t, err)
	server := api.NewControl(api.ControlConfig{
		Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Backup: func(ctx context.Context) (api.Backup, error) {
			b, err := db.Backup(ctx)
			if err != nil {
				return api.Backup{}, err
			}
			return wrap(api.Backup{ReadCloser: b, Size: b.Size, Written: b.Written}), nil
		},
	})
	must.Succeed(t, server.Start(t.Context()))
	t.Cleanup(func() {
		must.Report(t, server.Close(context.WithoutCancel(t.Context())))
		must.Report(t, db.Close())
	})
	return server.Addr()
}

func unchanged(b api.Backup) api.Backup { return b }

// TestBackupOfARunningRouter: the router that uses the folder makes the copy.
func TestBackupOfARunningRouter(t *testing.T) {
	// Guarantee: backup
	dir := stateOf(t)
	addr := running(t, dir, unchanged)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for name, args := range map[string][]string{
		"the API":                        {"-api", addr},
		"a configuration":                {"-config", configured(t, dir, "listen: {api: \""+addr+"\"}\n")},
		"a folder and its configuration": {"-config", configured(t, t.TempDir(), "listen: {api: \""+addr+"\"}\n"), dir},
	} {
		file := filepath.Join(t.TempDir(), "backup.db")
		code, _, errs := run(t.Context(), append(append([]string{"backup"}, args...), file)...)
		if code != cli.CodeOK {
			t.Fatalf("%s: exit code %d, %s", name, code, errs)
		}
		if got := restored(t, file); got != fixtureExport(t) {
			t.Errorf("%s: the backup has\n%s", name, got)
		}
	}
	for _, args := range [][]string{{"-api", addr}, {"-config", configured(t, dir, "listen: {api: \""+addr+"\"}\n")}} {
		if code, out, errs := run(t.Context(), append([]string{"export"}, args...)...); code != cli.CodeOK || out != fixtureExport(t) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, errs)
		}
		if code, out, errs := run(t.Context(), append([]string{"inspect"}, args...)...); code != cli.CodeOK || !strings.Contains(out, "2026-11-23T12:00:00Z, ") {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, errs)
		}
	}
	if names := namesIn(t, temporary); len(names) > 0 {
		t.Errorf("%q was left", names)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a folder": {[]string{dir}, "name the API of that router with -api ADDR"},
		"no API":   {[]string{"-config", configured(t, dir, "")}, "has no listen.api: add it and restart the router"},
	} {
		file := filepath.Join(t.TempDir(), "backup.db")
		code, _, errs := run(t.Context(), append(append([]string{"backup"}, c.args...), file)...)
		if code != cli.CodeFailed || !strings.Contains(errs, c.want) || !strings.Contains(errs, "is used by process") || len(namesIn(t, filepath.Dir(file))) > 0 {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}

// TestBackupFails: a backup that is not complete leaves no file, and no other file is overwritten.
func TestBackupFails(t *testing.T) {
	dir := stateOf(t)
	addr := running(t, dir, func(b api.Backup) api.Backup {
		b.Size++ // the answer is shorter than it should be
		return b
	})
	target := t.TempDir()
	file := filepath.Join(target, "backup.db")
	code, _, errs := run(t.Context(), "backup", "-api", addr, file)
	if code != cli.CodeFailed || !strings.Contains(errs, "the router closed the connection: try again") || len(namesIn(t, target)) > 0 {
		t.Errorf("a short answer: exit code %d, %s, %q", code, errs, namesIn(t, target))
	}
	must.Succeed(t, os.WriteFile(file, []byte("mine"), 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a file that exists":    {[]string{stateOf(t), file}, 1, "exists already"},
		"the rest of a backup":  {[]string{stateOf(t), restOf(t, filepath.Join(target, "x.db"))}, 1, "is the rest of an interrupted backup: delete it"},
		"no such folder":        {[]string{stateOf(t), filepath.Join(target, "no", "x")}, 1, "cannot be"},
		"no file":               {nil, 2, "name the file to write"},
		"a folder and an API":   {[]string{"-api", addr, stateOf(t), filepath.Join(target, "y")}, 2, "either a folder, or a router with -api or -in"},
		"nothing to copy":       {[]string{t.TempDir(), filepath.Join(target, "z")}, 2, "there is no state file"},
		"a damaged state file":  {[]string{truncated(t, stateOf(t)), filepath.Join(target, "z")}, 2, "damaged"},
		"a router that is away": {[]string{"-api", "127.0.0.1:1", filepath.Join(target, "z")}, 1, "does not answer at 127.0.0.1:1"},
	} {
		code, out, errs := run(t.Context(), append([]string{"backup"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("a file was overwritten: %q, %v", text, err)
	}
	if names := namesIn(t, target); !slices.Equal(names, []string{"backup.db", "x.db.new"}) {
		t.Errorf("there is %q", names)
	}
}

// restOf puts the file of an interrupted backup beside a file.
func restOf(t *testing.T, file string) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(file+".new", nil, 0o600))
	return file
}
