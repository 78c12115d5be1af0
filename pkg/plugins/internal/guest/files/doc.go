// Package files contains the files that a guest may read. They are copied from folders, archives
// and single files when the handler is opened. So a guest cannot wait for a disk, and cannot leave
// its folders: there are no links in a [Tree].
package files
