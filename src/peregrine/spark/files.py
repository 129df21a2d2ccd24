"""Hadoop's local file system without a process for each file.

Without Hadoop's native library, which the wheels of PySpark lack, each file that is created means a `chmod` in a
process of its own: half a dozen for each batch, a fifth of its time. Java can do the same by a call. The class that
says so is compiled by Janino, which is part of Spark, and its one instance is put into Hadoop's cache of file systems,
where everything in this Java process finds it. Nothing else about files changes, their checksums included.
"""

import logging
from typing import Any

log = logging.getLogger(__name__)

_CLASS = "peregrine.LocalFiles"
_SOURCE = """
package peregrine;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() { super(new Raw()); }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                Files.setPosixFilePermissions(
                    pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
            }
        }
    }
}
"""


def without_forks(spark: Any) -> bool:
    """For a session whose tasks run in the same Java process. False: files are made as before, only slower."""
    jvm = spark._jvm
    local = jvm.java.net.URI("file:///")
    try:
        before = jvm.org.apache.hadoop.fs.FileSystem.get(local, spark._jsc.hadoopConfiguration())
        if before.getClass().getName() == _CLASS:
            return True  # another session of this process has done it
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        conf.setClassLoader(compiler.getClassLoader())
        conf.set("fs.file.impl", _CLASS)
        before.close()  # takes it out of the cache; those of other schemes stay as they are
        found = jvm.org.apache.hadoop.fs.FileSystem.get(local, conf)
        return bool(found.getClass().getName() == _CLASS)
    except Exception as error:  # whatever another version of Spark may lack: it is only slower without
        log.info("files=%r", str(error).partition("\n")[0])
        return False
