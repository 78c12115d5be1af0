package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The names in DIR. Outside programs rely on kubeconfig, kubeconfig-limited, etcd-url,
// log and audit.log.
const (
	portsFile     = "ports.json"
	etcdURLFile   = "etcd-url"
	logFile       = "log"
	auditLogFile  = "audit.log"
	auditRules    = "audit-policy.yaml"
	etcdData      = "etcd"
	keysDir       = "keys"
	tokensFile    = "tokens.csv"
	adminConfig   = "kubeconfig"
	limitedConfig = "kubeconfig-limited"
	prepareLock   = "lock"
)

// dir is the folder of one sandbox, prepared and locked.
type dir struct {
	path   string
	ports  ports
	fresh  bool              // this process chose the ports
	tokens map[string]string // user to token
	locks  []*os.File
}

// openDir prepares the folder and takes the locks of the halves of this process. The kernel
// releases the locks of a killed process.
func openDir(opts options) (*dir, error) {
	if err := os.MkdirAll(opts.dir, 0o700); err != nil {
		return nil, err
	}
	d := &dir{path: opts.dir}
	for _, half := range []string{etcdHalf, apiserverHalf} {
		if !opts.runs(half) {
			continue
		}
		if err := d.lock(half+".lock", unix.LOCK_EX|unix.LOCK_NB); err != nil {
			d.unlock()
			return nil, fmt.Errorf("%s: another sandbox uses it: %w", d.path, err)
		}
	}
	if err := d.prepare(); err != nil {
		d.unlock()
		return nil, err
	}
	return d, nil
}

// prepare makes the files that both halves read, unless they exist.
func (d *dir) prepare() error {
	// Two halves that start at the same time must not both choose ports and keys.
	if err := d.lock(prepareLock, unix.LOCK_EX); err != nil {
		return err
	}
	defer func() {
		_ = d.locks[len(d.locks)-1].Close()
		d.locks = d.locks[:len(d.locks)-1]
	}()
	if err := d.loadPorts(); err != nil {
		return err
	}
	if err := d.loadKeys(); err != nil {
		return err
	}
	if err := d.loadTokens(); err != nil {
		return err
	}
	return d.writeAddresses()
}

// writeAddresses writes the files that name the ports.
func (d *dir) writeAddresses() error {
	if err := replaceFile(d.file(etcdURLFile), []byte(d.etcdURL()+"\n"), 0o600); err != nil {
		return err
	}
	if err := d.writeKubeconfig(adminConfig, adminUser); err != nil {
		return err
	}
	return d.writeKubeconfig(limitedConfig, limitedUser)
}

func (d *dir) file(name string) string { return filepath.Join(d.path, name) }

// lock takes a lock file and holds it until unlock.
func (d *dir) lock(name string, how int) error {
	f, err := os.OpenFile(d.file(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return err
	}
	d.locks = append(d.locks, f)
	return nil
}

func (d *dir) unlock() {
	for _, f := range d.locks {
		_ = f.Close()
	}
	d.locks = nil
}

// close releases the folder, and unless keep is set removes the files of the sandbox. Other files
// stay, since DIR may be any folder.
func (d *dir) close(keep bool) error {
	defer d.unlock()
	if keep {
		return nil
	}
	var errs []error
	for _, name := range []string{
		portsFile, etcdURLFile, logFile, auditLogFile, auditRules, etcdData, keysDir, tokensFile,
		adminConfig, limitedConfig, etcdHalf + ".lock", apiserverHalf + ".lock", prepareLock,
	} {
		errs = append(errs, os.RemoveAll(d.file(name)))
	}
	_ = os.Remove(d.path) // fails, as intended, if the folder has other files
	return errors.Join(errs...)
}

// replaceFile replaces a file atomically, unless its content is the same: neither a killed process
// nor a concurrent reader leaves or sees half a file.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}
